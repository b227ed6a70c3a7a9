"""What the host tells a certification in a container: the certificate says where it ran, and how it is repeated."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from splatfix.certify.model import Certificate
from splatfix.core.codec import from_json, parse_json, to_json
from splatfix.core.files import dumps
from splatfix.core.step import Command

VARIABLE = "SPLATFIX_CONTAINER"
"""The variable that hands it in, as JSON."""


class Host(Struct, frozen=True):
    """A container, as only the host knows it."""

    lane: str
    image: str
    """The id of the image, with its algorithm."""
    base: str
    """Name and id of the image that was made from."""
    repeat: Command
    """The host's command line for the same."""

    @property
    def variables(self) -> dict[str, str]:
        """Those of the container's environment that tell it."""
        return {VARIABLE: dumps(to_json(self))}


def placed(certificate: Certificate, variables: Mapping[str, str]) -> Certificate:
    """Return the certificate with the container that it is made in, and the host's command; as it is outside of one."""
    if not (description := variables.get(VARIABLE)):
        return certificate
    host = from_json(Host, parse_json(description))
    text = f"lane {host.lane}, image {host.image}, base {host.base}"
    return replace(
        certificate, environment={**certificate.environment, "container": text}, repeat=host.repeat
    )
