"""``sitecustomize`` of a trainer that is certified: sets up what the configuration asks for, then the environment's own.

Python imports ``sitecustomize`` in every interpreter that inherits PYTHONPATH, so what a trainer starts is observed too.
Nothing here stops a trainer: Python prints what a ``sitecustomize`` raises, and goes on.
"""

import os
import sys

CONFIGURATION = "SPLATFIX_INSIDE"
"""Names the JSON file: see :func:`splatfix.certify.staging.stage_observer`."""


def run_the_next() -> None:
    """The environment's own ``sitecustomize``, which Python would have imported without ours."""
    import importlib.machinery
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    if os.environ.get(CONFIGURATION):
        from splatfix.certify.inside import observer

        observer.start(os.environ[CONFIGURATION])
finally:
    run_the_next()
