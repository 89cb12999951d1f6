"""What each layer that a user may replace must be able to do."""
