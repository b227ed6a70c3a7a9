"""Use cases: each puts the rooms together for one command, decides nothing of its own, and returns a :class:`Result`."""
