"""splatfix: doctor, installer and certifier for 3D Gaussian Splatting (3DGS) stacks; from Python, see :mod:`splatfix.api`."""

# Nothing is imported here: ``python -m splatfix`` runs this while a stranger's folder is still on the path.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from splatfix.api import SplatfixError as SplatfixError
    from splatfix.api import diagnose as diagnose
    from splatfix.api import explain as explain
    from splatfix.api import plan as plan
    from splatfix.api import report as report

__version__ = "0.1.0"

_API = ("SplatfixError", "diagnose", "explain", "plan", "report")


def __getattr__(name: str) -> object:
    if name not in _API:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    api = import_module("splatfix.api")
    # three are packages too, which that import made callable
    return globals().get(name, getattr(api, name))
