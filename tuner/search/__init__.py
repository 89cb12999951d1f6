"""Search policies: which candidates to try next."""
