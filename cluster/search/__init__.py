"""A search on a cluster: the job, its host, its clients."""
