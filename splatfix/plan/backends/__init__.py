"""One file a backend: what it would do for a machine, as an ``Option``, and for sources at hand, as an ``InstallPlan``."""
