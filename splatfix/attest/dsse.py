"""DSSE, the Dead Simple Signing Envelope, protocol v1: what is signed, and the envelope as a file.

Format and protocol: envelope.md and protocol.md of the DSSE specification, version 1.0.2 (secure-systems-lab/dsse).

securesystemslib carries the same envelope, and a test holds this one against it. It is not used here: its ``verify`` skips a
signature whose key id, which nobody signed, was changed; it reads JSON that is spelled differently; and it asks for a newer
cryptography. The checks around it would be all of this file but :func:`pae`.
"""

import base64
import json

from splatfix.core.codec import CodecError, from_json, parse_json
from splatfix.core.data import dataclass

ENVELOPE = "certificate.intoto.jsonl"
"""The file name, beside certificate.json. The ending is that of in-toto's bundles, JSON lines of one envelope each: tools
that look for attestations find it by that."""

PAYLOAD_TYPE = "application/vnd.in-toto+json"


@dataclass(frozen=True)
class Envelope:
    """A payload with one signature. Nothing in it is to be believed before the signature was checked."""

    payload: bytes
    signature: bytes
    keyid: str = ""
    """Which key it may be, for people; DSSE does not sign it."""
    payload_type: str = PAYLOAD_TYPE


def pae(payload_type: str, payload: bytes) -> bytes:
    """What is signed, the pre-authentication encoding: ``DSSEv1 <length> <type> <length> <payload>``.

    Lengths are of bytes, in ASCII decimal digits without leading zeros.
    """
    kind = payload_type.encode("utf-8", "surrogatepass")
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def encode(envelope: Envelope) -> bytes:
    """The file: one line of ASCII JSON, base64 with the standard alphabet and padding."""
    document = {
        "payload": base64.b64encode(envelope.payload).decode("ascii"),
        "payloadType": envelope.payload_type,
        "signatures": [
            {"keyid": envelope.keyid, "sig": base64.b64encode(envelope.signature).decode("ascii")}
        ],
    }
    return json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"


@dataclass(frozen=True)
class _Signature:
    keyid: str
    sig: str


@dataclass(frozen=True)
class _Document:
    payload: str
    payloadType: str
    signatures: tuple[_Signature, ...]


def decode(content: bytes) -> Envelope:
    """The inverse of :func:`encode`, byte for byte.

    Another spelling of the same envelope (blanks, order of keys, base64 that decodes alike) is refused, so that no byte of
    the file can change unseen.

    Raises:
        ValueError: it is no envelope with one signature, or is not spelled as splatfix spells it.
    """
    try:
        document = from_json(_Document, parse_json(content.decode("ascii")))
    except CodecError as error:
        raise ValueError(f"it is no DSSE envelope ({error})") from error
    except ValueError as error:
        raise ValueError(f"it is no JSON ({error})") from error
    # More than one would leave it open which of them holds; splatfix writes one.
    if len(document.signatures) != 1:
        raise ValueError(f"one signature is expected, it has {len(document.signatures)}")
    (entry,) = document.signatures
    try:
        payload = base64.b64decode(document.payload, validate=True)
        signature = base64.b64decode(entry.sig, validate=True)
    except ValueError as error:
        raise ValueError(f"its base64 cannot be decoded ({error})") from error
    envelope = Envelope(payload, signature, entry.keyid, document.payloadType)
    # Blanks, the order of keys and the last bits of base64 are free in JSON: only this leaves no byte free.
    if encode(envelope) != content:
        raise ValueError("it is not spelled as splatfix writes it")
    return envelope
