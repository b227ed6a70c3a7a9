import copy
import dataclasses
import pickle
import threading

import pytest

from splatfix.core.codec import from_json, to_json
from splatfix.core.data import dataclass, field, fields, replace


@dataclass(frozen=True)
class Pair:
    left: int
    right: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Triple(Pair):
    kind: int = 3


class Named(Pair):
    pass


def fresh() -> type[Pair]:
    """A class that nobody used yet."""

    @dataclass(frozen=True)
    class Fresh(Pair):
        pass

    @dataclass(frozen=True)
    class Alone:
        left: int
        right: list[int] = field(default_factory=list)

    assert dataclasses.is_dataclass(Fresh(1))
    return Alone  # type: ignore[return-value]


def test_methods_are_written_when_a_class_is_first_used() -> None:
    for use in (
        lambda kind: kind(1),
        fields,
        lambda kind: from_json(kind, {"left": 1}),
        dataclasses.is_dataclass,
    ):
        kind = fresh()
        assert "__init__" not in vars(kind)
        use(kind)
        assert "__init__" in vars(kind)


def test_it_is_the_standard_librarys_dataclass() -> None:
    assert Named(1) != Pair(1)
    assert Pair(1, [2]) == Pair(left=1, right=[2]) != Pair(1)
    assert repr(Triple(1, kind=4)) == "Triple(left=1, right=[], kind=4)"
    assert [item.name for item in fields(Triple)] == ["left", "right", "kind"]
    assert replace(Pair(1), left=2) == Pair(2)
    assert pickle.loads(pickle.dumps(Pair(1, [2]))) == copy.deepcopy(Pair(1, [2])) == Pair(1, [2])
    assert from_json(Pair, to_json(Pair(1, [2]))) == Pair(1, [2])
    with pytest.raises(dataclasses.FrozenInstanceError):
        Pair(1).left = 2  # type: ignore[misc]
    for arguments in ((), (1, [], 3)):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            Pair(*arguments)


def test_threads_that_use_a_class_at_once_see_it_finished() -> None:
    for _ in range(50):
        kind, made = fresh(), list[Pair]()
        threads = [
            threading.Thread(target=lambda kind=kind, made=made: made.append(kind(1))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [kind(1)] * 8
