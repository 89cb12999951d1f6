"""What a cost model is told of a program."""
