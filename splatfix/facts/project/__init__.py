"""Reader of what a project declares: pyproject.toml, requirements, conda's and pixi's files, and the lock files beside them."""
