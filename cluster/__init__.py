"""Workers on machines, and the command line that wires it all. Knows Ray."""
