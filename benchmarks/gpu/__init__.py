"""What is found out on a machine with a GPU."""
