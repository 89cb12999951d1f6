"""What MLflow's pages show of a run, and in which order."""
