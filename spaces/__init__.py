"""Where candidates come from: programs, their schedules and features. Knows TVM."""
