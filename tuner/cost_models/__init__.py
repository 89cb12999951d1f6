"""Cost models: their data, their fitting, and pretrained models to begin with."""
