"""Whole networks in halves, tuned and run on the emulated device, beside PyTorch."""
