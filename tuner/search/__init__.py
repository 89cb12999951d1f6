"""Search policies: the choice of the candidates to try next."""
