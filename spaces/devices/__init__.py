"""Work on the device that kernels run on: timing, its condition, and the comparison of outputs."""
