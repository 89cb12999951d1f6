"""Whether a kernel's output is right."""
