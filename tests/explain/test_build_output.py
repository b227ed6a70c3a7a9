"""Build logs as they really look, shortened; each must give the line a person needs to see."""

import pytest

from splatfix.core.toml import parse_toml
from splatfix.explain import explain_build, explain_image_build
from tests.explain.conftest import CASES

LOGS = parse_toml((CASES / "builds.toml").read_text("utf-8"))


@pytest.mark.parametrize(("log", "kind", "line", "hint"), LOGS["causes"])
def test_cause(log: str, kind: str, line: str, hint: str) -> None:
    cause = explain_build(LOGS[log])
    assert cause.kind == kind
    assert line in cause.lines[0]
    assert hint in " ".join(step.line() for step in cause.todo)
    assert cause.meaning


@pytest.mark.parametrize(("at", "said", "code", "kind", "line", "words"), LOGS["setup_scripts"])
def test_a_setup_script_that_does_not_get_through(
    at: int, said: str, code: int, kind: str, line: str, words: str
) -> None:
    said = LOGS["trace"].format(line=at, said=said) if at else said
    cause = explain_build(LOGS["around"].format(said=said, code=code))
    assert cause.kind == kind and line in cause.lines[0]
    assert words in cause.meaning


def test_of_chained_exceptions_the_last_is_the_cause() -> None:
    first = LOGS["trace"].format(line=2, said="ImportError: torch has no part of that name")
    chained = f"{first}\n  During handling of the above exception, another exception occurred:\n\n"
    last = LOGS["trace"].format(line=9, said="ModuleNotFoundError: No module named 'cmake_build_extension'")
    cause = explain_build(LOGS["around"].format(said=chained + last, code=1))
    assert "cmake_build_extension" in cause.lines[0] and "line 9 of setup.py" in cause.meaning
    assert cause.failure_class == "module-missing"
    assert "cmake_build_extension" in cause.todo[0].line()


def test_a_source_for_another_python() -> None:
    cause = explain_build(LOGS["other_python"])
    assert cause.lines[0].startswith("Package 'simple-knn' requires a different Python")
    assert "3.11.7" in cause.meaning and ">=3.13" in cause.todo[0].line()


def test_a_setup_script_that_ends_as_if_all_were_well() -> None:
    cause = explain_build(LOGS["exit_0"])
    assert "exit code 0" in cause.meaning and "sys.exit" in cause.todo[0].line()


def test_what_cmake_misses_is_given_whole() -> None:
    cause = explain_build(LOGS["cmake"])
    assert cause.kind == "cmake" and any("CGAL" in line for line in cause.lines)
    assert not any("Configuring incomplete" in line for line in cause.lines)


@pytest.mark.parametrize(("line", "kind"), LOGS["programs"])
def test_words_of_many_programs(line: str, kind: str) -> None:
    cause = explain_build(f"  [1/9] c++ -c a.cpp\n  {line}\n  error: command failed with exit code 1\n")
    assert (cause.kind, cause.lines[0]) == (kind, line)


@pytest.mark.parametrize("line", LOGS["quiet"])
def test_lines_that_say_nothing_wrong(line: str) -> None:
    assert explain_build(f"  {line}\n  the real reason\n").lines[-1] == "the real reason"


def test_code_around_an_error_is_kept_the_next_error_not() -> None:
    cause = explain_build(LOGS["gcc"])
    assert any("tiles_touched" in line for line in cause.lines)
    assert not any("expected ';'" in line for line in cause.lines)


def test_what_the_code_mentions_is_not_what_is_wrong() -> None:
    log = "x.c:2:17: error: expected expression before ';'\n    2 | uint32_t half = ;\n      |                 ^\n"
    cause = explain_build(log)
    assert cause.kind == "compiler" and not cause.todo and not cause.meaning


def test_a_log_that_says_nothing_known_gives_its_end() -> None:
    cause = explain_build("first\n" + "\n".join(f"line {n}" for n in range(20)))
    assert cause.kind == "unknown" and cause.lines == tuple(f"line {n}" for n in range(15, 20))


def test_where_nothing_is_known_the_builds_own_last_words_count() -> None:
    log = "  doing this\n  giving up for no reason\n" + LOGS["no_compiler"].partition("'gcc'\n")[2]
    assert explain_build(log).lines == ("doing this", "giving up for no reason")


def test_the_class_of_the_whole_log_and_its_fix_where_the_line_has_none() -> None:
    assert explain_build(LOGS["gcc"]).failure_class == "missing-cstdint"
    log = "/usr/bin/ld: cannot find -lEGL: No such file or directory\ncollect2: error: ld returned 1 exit status\n"
    cause = explain_build(log)
    assert (cause.kind, cause.failure_class) == ("linker", "egl-missing")
    assert "EGL" in cause.meaning and "libegl1" in cause.todo[0].line()
    assert explain_build("nothing of note\n").failure_class == ""


@pytest.mark.parametrize(("log", "kind", "line", "failure", "solvable"), LOGS["images"])
def test_an_image_that_is_not_built(log: str, kind: str, line: str, failure: str, solvable: bool) -> None:
    cause = explain_image_build(LOGS.get(log, log).splitlines())
    assert line in cause.lines[0]
    assert (cause.kind, cause.failure_class, bool(cause.todo)) == (kind, failure, solvable)


def test_a_full_disk_explains_what_comes_before_it() -> None:
    cause = explain_image_build(["E: Unable to locate package gcc", "tar: No space left on device"])
    assert cause.lines == ("tar: No space left on device",)


def test_an_image_build_that_printed_nothing() -> None:
    assert explain_image_build([]).lines == ()
