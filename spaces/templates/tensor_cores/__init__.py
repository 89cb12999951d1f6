"""Products on tensor cores: programs that say what each thread of a GPU does."""
