"""Products of matrices as programs that say what each thread of a GPU does: what all such share."""
