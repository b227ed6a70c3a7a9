"""The family ``checkout``: a stack's repository, its sources, its Python code and what it calls."""
