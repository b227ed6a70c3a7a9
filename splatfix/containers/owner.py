"""Whose a container or an image on an engine is: a label with the process that made it, and whether that is dead."""

from urllib.parse import parse_qsl, urlencode

from splatfix.core.holder import Holder, this_process

OWNER_LABEL = "org.splatfix.owner"


def owner_label() -> dict[str, str]:
    """The label of what belongs to this process: without quotation marks, which Podman keeps with their backslashes."""
    return {OWNER_LABEL: urlencode(this_process()._asdict())}


def is_dead(label: str) -> bool:
    """The process that wrote the label ran here and is gone; unknown is alive."""
    owner = dict(parse_qsl(label))
    try:
        return Holder(owner["host"], int(owner["process"]), owner["started"]).dead
    except (KeyError, ValueError):
        return False
