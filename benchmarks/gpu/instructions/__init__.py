"""What the instructions that kernels are made of do on a device."""
