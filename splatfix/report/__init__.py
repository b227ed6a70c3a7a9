"""One versioned JSON document per command, and its renderings for people."""
