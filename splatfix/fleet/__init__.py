"""More than one machine: the verdict of a node, and what becomes of many. Who runs where, a scheduler decides."""
