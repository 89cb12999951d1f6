"""The source of candidates: programs, their schedules and features. Knows TVM."""
