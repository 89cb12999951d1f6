"""Who works where, and the command line that wires it all. Knows Ray."""
