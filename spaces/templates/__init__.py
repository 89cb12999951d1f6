"""Schedules with knobs: hand-written shapes of code whose sizes are searched."""
