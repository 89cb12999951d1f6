"""What is shown of a run and of its tasks, in seconds: every renderer takes it from here."""
