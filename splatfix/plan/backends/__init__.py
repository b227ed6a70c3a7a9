"""A function a backend: its plan for a machine, and for sources that were read what ``install`` runs; or a rejection."""
