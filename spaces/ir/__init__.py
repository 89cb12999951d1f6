"""TVM's IR: its names, rewriting it, schedules, symbolic dimensions."""
