"""The points of a task's design space, and the programs they stand for."""
