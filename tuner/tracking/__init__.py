"""The whole search in MLflow, without waiting for it."""
