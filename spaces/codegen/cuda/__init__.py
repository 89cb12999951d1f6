"""Machine code of CUDA kernels: compiled by nvcc as we ask, and read."""
