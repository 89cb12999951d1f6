"""Commands that read what a run has found."""
