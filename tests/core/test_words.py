import pytest

from splatfix.core.words import beginning, counted, few


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [
        (0, "file", "0 files"),
        (1, "compiler", "1 compiler"),
        (1.0, "step", "1 step"),
        (2, "folder", "2 folders"),
        (3, "library", "3 libraries"),
        (4, "day", "4 days"),
    ],
)
def test_a_number_and_its_noun_agree(number: float, noun: str, said: str) -> None:
    assert counted(number, noun) == said


def test_a_long_list_is_cut() -> None:
    names = [f"file{number}.cu" for number in range(90)]
    assert few(names[:5]) == "file0.cu, file1.cu, file2.cu, file3.cu, file4.cu"
    assert few(names[:6]).endswith("file5.cu"), "one more is named, not counted"
    assert few(names) == "file0.cu, file1.cu, file2.cu, file3.cu, file4.cu and 85 more"
    assert few(names[:9], 2, "; ") == "file0.cu; file1.cu and 7 more" and few([]) == ""


def test_a_long_text_is_cut_between_words() -> None:
    assert beginning("short") == "short"
    assert beginning("word " * 700, 20) == "word word word word ... (3500 characters in all)"
    assert beginning("x" * 30, 10) == "xxxxxxxxxx ... (30 characters in all)"
