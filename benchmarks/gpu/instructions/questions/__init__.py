"""What only a device can tell, and whoever emulates one must decide on."""
