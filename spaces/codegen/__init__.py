"""From scheduled programs to machine code."""
