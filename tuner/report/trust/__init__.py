"""Whether a run is what it says: its claims, and what a second look at them found."""
