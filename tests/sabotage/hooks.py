"""Put beside a sabotage: changes a module as soon as it was imported."""

import importlib.abc
import importlib.util
import sys


class _After(importlib.abc.MetaPathFinder):
    def __init__(self, name, change):
        self.name, self.change = name, change

    def find_spec(self, name, path, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            self.change(module)

        spec.loader.exec_module = exec_module
        return spec


def after(name, change):
    """``change(module)`` after its import."""
    sys.meta_path.insert(0, _After(name, change))


def instead(name, path, make):
    """``make(right)`` in the place of ``path`` in a module."""

    def change(module):
        *owners, last = path.split(".")
        for owner in owners:
            module = getattr(module, owner)
        setattr(module, last, make(getattr(module, last)))

    after(name, change)
