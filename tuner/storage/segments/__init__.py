"""A store on object storage: a log of segments, one writer at a time."""
