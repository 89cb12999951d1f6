"""Workers and leases as state machines, and how many there should be. Pure."""
