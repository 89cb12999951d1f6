"""What users may ask for: settings with their flags, checks and defaults, and requests of them."""
