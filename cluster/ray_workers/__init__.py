"""Ray: clusters, and workers on them."""
