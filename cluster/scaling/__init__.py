"""Workers and leases as state machines, and the number of workers a cluster should have. Pure."""
