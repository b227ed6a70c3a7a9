"""More than one machine."""
