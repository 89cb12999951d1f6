"""What the tuner does on a cluster that grows, shrinks and breaks."""
