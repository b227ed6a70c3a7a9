"""One file a kind of backend: its plan for a machine, and for sources that were read what ``install`` executes; or a rejection."""
