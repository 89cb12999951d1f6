"""What lets this repository run on a machine with a GPU and no network."""
