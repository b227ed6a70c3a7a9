"""What no terminal should obey is spelled out, and JSON reads as it was."""

import json
import unicodedata

import pytest

from splatfix.core.files import dumps
from splatfix.core.visible import visible

HARMFUL = ("Cc", "Cf", "Cs", "Zl", "Zp")
# beyond the first plane and the tags, blocks of one kind follow each other
EVERY = [chr(n) for n in (*range(0x11000), *range(0x11000, 0xE0000, 61), *range(0xE0000, 0xE0200))]


def test_every_harmful_character_is_spelled_out() -> None:
    for sign in EVERY:
        if unicodedata.category(sign) in HARMFUL:
            assert visible(sign).isascii() and visible(sign).isprintable() and visible(sign)[0] == "\\"


@pytest.mark.parametrize("text", ["", "a b", "ü✓–→☠", "漢字 имя", "C:\\a\\x1b", "~'\"$`|"])
def test_what_can_be_read_stays(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[0m", "\\x1b[0m"),
        ("a\tb\r\n", "a\\tb\\r\\n"),
        ("\x7f\x9b\xa0", "\\x7f\\u009b\\u00a0"),
        ("\u202e\U000e0041", "\\u202e\\U000e0041"),
        ("\udcff\ud800", "\\xff\\ud800"),
    ],
)
def test_how_it_is_spelled(text: str, shown: str) -> None:
    assert visible(text) == shown == visible(shown)
    assert visible(f"a\n{text}", keep="\n") == f"a\n{shown}".replace("\\n", "\n")


def test_json_reads_every_character_as_it_was() -> None:
    text = "".join(EVERY)
    document = dumps({text: [text, "ü"]})
    assert json.loads(document.encode("utf-8")) == json.loads(json.dumps({text: [text, "ü"]}))
    assert all(sign.isprintable() or sign == "\n" for sign in document)
    assert "ü" in document
