"""Functions of other libraries in the place of kernels: contestants that no search made."""
