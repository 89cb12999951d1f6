"""The commands of `tuner`, one file each. What is heavy is imported when a command runs."""
