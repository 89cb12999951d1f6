"""The weights of a graph: which operands are constants, and where packed ones become floats."""
