"""Code of users: found by name, loaded wherever it is needed, its mistakes named by line."""
