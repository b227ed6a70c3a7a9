"""Whether a wheel is installed already, byte for byte, so that installing it again would change nothing."""

from __future__ import annotations

import zipfile

from splatfix.install.distributions import find_installed
from splatfix.install.target import Target
from splatfix.install.wheel_file import WheelFile


def is_installed(wheel: WheelFile, target: Target) -> bool:
    """Every file of the wheel lies where pip would put it, with the same bytes, and the distribution has no others.

    What was shown of the wheel (GPU code, tags, symbols) is then true of what is installed. A script whose first line
    pip rewrites is never the same; such a wheel is installed again.

    Raises:
        SplatfixError: ``cannot-back-up`` for a distribution of that name whose files nobody wrote down.
    """
    found = find_installed(target, wheel.name)
    if len(found) != 1 or found[0].info.name != wheel.dist_info:
        return False
    info, ours = found[0].info, set(wheel.destinations(target))
    listed = [path for path in found[0].files if path.suffix != ".pyc"]
    if not all(path.is_file() and (path in ours or info in path.parents) for path in listed):
        return False
    with zipfile.ZipFile(wheel.path) as archive:
        return all(
            path.is_file() and path.read_bytes() == archive.read(member)
            for member, path in wheel.placed(target)
            if member != f"{wheel.dist_info}/RECORD"  # pip writes its own
        )
