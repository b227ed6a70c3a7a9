"""DSSE's own test vector, and that an envelope is read back byte for byte."""

from __future__ import annotations

import pytest

from splatfix.attest.dsse import Envelope, decode, encode, pae


def test_what_is_signed() -> None:
    """The vector of DSSE's protocol.md; lengths are of bytes."""
    expected = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert pae("http://example.com/HelloWorld", b"hello world") == expected
    assert pae("", b"") == b"DSSEv1 0  0 "
    assert pae("\u00e9", b"\x00\xff") == b"DSSEv1 2 \xc3\xa9 2 \x00\xff"


def test_type_and_payload_cannot_be_shifted_into_each_other() -> None:
    assert pae("a", b"b 1 c") != pae("a 1 b", b"c")


@pytest.mark.parametrize("payload", [b"", b"{}", bytes(range(256))])
def test_there_and_back(payload: bytes) -> None:
    envelope = Envelope(payload, b"s" * 64, "ab")
    content = encode(envelope)
    assert decode(content) == envelope
    assert content.isascii() and content.endswith(b"}\n") and content.count(b"\n") == 1
