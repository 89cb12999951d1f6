"""Files that survive: written whole, locked, in folders that are ours."""
