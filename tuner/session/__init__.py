"""One sitting of a run: what to propose, when to stop, whom to tell."""
