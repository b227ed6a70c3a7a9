"""DSSE's own test vector."""

from splatfix.attest.dsse import pae


def test_what_is_signed() -> None:
    """The vector of DSSE's protocol.md; lengths are of bytes."""
    expected = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert pae("http://example.com/HelloWorld", b"hello world") == expected
    assert pae("", b"") == b"DSSEv1 0  0 "
    assert pae("\u00e9", b"\x00\xff") == b"DSSEv1 2 \xc3\xa9 2 \x00\xff"
