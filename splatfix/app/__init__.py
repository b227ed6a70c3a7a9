"""Use cases: each puts the rooms together for one command, decides nothing of its own, and returns a :class:`Result`.

A command imports its own when it is called: all of them together take as long as a diagnosis's own imports.
"""
