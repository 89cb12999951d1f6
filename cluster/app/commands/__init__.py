"""The commands of `tuner`, one file each. Heavy modules are imported when a command runs."""
