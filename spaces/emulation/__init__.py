"""A CUDA device made of threads of a CPU: it runs the CUDA C that is emitted for a device."""
