"""One session of a run: its loop, the allocation of trials, the finalists, its observers."""
