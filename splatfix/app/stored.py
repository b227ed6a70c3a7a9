"""A certificate that was written earlier, here or elsewhere, read back as it was."""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from splatfix import __version__
from splatfix.certify.model import Certificate, Verdict
from splatfix.core.codec import from_json, parse_json
from splatfix.core.errors import Rejected
from splatfix.core.reading import read_bytes
from splatfix.model import Facts
from splatfix.model.option import Options
from splatfix.report.forms import SCHEMA_VERSION

NAME = "certificate.json"


class Stored(Struct, frozen=True):
    """A certificate.json."""

    path: Path
    sha256: str
    document: Mapping[str, Any]
    """As it was written, without the facts of the machine where they were not asked for."""
    certificate: Certificate
    options: Options | None
    facts: Facts | None
    """None where they were not asked for: they are the largest part."""


def read_stored(path: Path, *, with_facts: bool = False) -> Stored | Rejected:
    """Read a certificate.json, or the one in a report folder; rejected with exit code 2."""
    file = path / NAME if path.is_dir() else path
    content = read_bytes(file)
    if not isinstance(content, bytes):
        reason = content.reason if content else "No such file or directory"
        return Rejected.of("app.unreadable-certificate", path=file, reason=reason)
    try:
        members = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        texts = {name: bytes(raw).decode() for name, raw in members.items() if with_facts or name != "facts"}
        document = {name: parse_json(text) for name, text in texts.items()}
    except (ValueError, RecursionError):  # damaged, which this says, or with names that are no UTF-8
        try:
            document = parse_json(content.decode("utf-8-sig"))
        except ValueError as error:
            return Rejected.of("app.damaged-certificate", path=file, error=error)
    if (
        not isinstance(document, dict)
        or document.get("command") != "certify"
        or document.get("verdict") not in [item.value for item in Verdict]
    ):
        return Rejected.of("app.not-a-certificate", file=file)
    version, by = document.get("schema_version"), document.get("splatfix_version")
    if version != SCHEMA_VERSION or not isinstance(by, str):
        return Rejected.of(
            "app.other-schema", file=file, by=by, version=version, here=__version__, reads=SCHEMA_VERSION
        )
    try:
        parts = {name: document[name] for name in Certificate.__struct_encode_fields__ if name in document}
        certificate = from_json(Certificate, parts)
        options = from_json(Options | None, document.get("options"))  # type: ignore[arg-type]
        facts = from_json(Facts, document.get("facts")) if with_facts else None
        datetime.fromisoformat(certificate.issued)
        folder = file.parent.resolve()
        for scene in certificate.scenes:
            for name in filter(None, (*scene.images, scene.log)):
                # a stranger's certificate could otherwise put any file of this machine into the page
                if not Path(folder, name).resolve().is_relative_to(folder):
                    raise ValueError(f"{name!a} leads out of the report folder")
    except ValueError as error:
        return Rejected.of("app.changed-certificate", file=file, version=by, error=error)
    return Stored(file, hashlib.sha256(content).hexdigest(), document, certificate, options, facts)
