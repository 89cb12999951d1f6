"""What tensor cores need for elements other than halves: bytes, and single precision."""
