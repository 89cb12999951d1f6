"""The weights of a graph: constants of its programs, packed numbers and where they become floats."""
