"""What lets others trust a run: its winners verified, and reproduced by TVM alone."""
