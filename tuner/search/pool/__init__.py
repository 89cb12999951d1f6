"""The search of a static task's templates: all settings are known, and the next is chosen."""
