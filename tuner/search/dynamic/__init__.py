"""The search for a few kernels for all shapes of a task with symbolic dimensions (DietCode)."""
