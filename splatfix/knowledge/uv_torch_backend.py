"""What ``uv pip install --torch-backend=auto`` would choose: by the driver alone, blind to the GPU's architecture."""

from __future__ import annotations

from splatfix.knowledge._tables import Version, cached, parse_version, table
from splatfix.knowledge.drivers import Platform


@cached
def _floors() -> tuple[tuple[str, dict[str, Version]], ...]:
    return tuple(
        (tag, {name: parse_version(row[name]) for name in ("linux", "windows")})
        for tag, row in table("uv_torch_backend")["backends"].items()
    )


def uv_backends(driver: Version, platform: Platform = "linux") -> tuple[str, ...]:
    """The indexes that uv offers for a driver, in its order (newest first, ``cpu`` last).

    It never looks at the GPU: a GTX 1080 with driver 580 is offered cu132, which has no code for it.
    """
    return (*(tag for tag, floors in _floors() if driver >= floors[platform]), "cpu")
