"""Object storage: folders and buckets behind one seam."""
