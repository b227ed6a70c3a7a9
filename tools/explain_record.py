"""Measures how often ``explain`` is right, and writes ``tests/records/explain.json``.

A fresh batch: cases with their labels and the number of the batch, but without ``first``, are added to ``held_out.jsonl``;
``python -m tools.explain_record --first-look`` adds what is said of them, once, before it measures.

Three things are held out in turn: cases (``held_out`` holds batches that were labelled by their threads before anything was
said of them, and keeps what was said of each case the first time; the wordings were mended after each batch; ``none`` among
the classes that count as right says that naming no cause is right, too), wordings (in
five folds by source, a wording that no case outside the fold bears out is left out; hints stay), and classes (all that is
known of a class is left out: what is then said of its cases should not be loud).
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import zlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from splatfix.explain import explain_text
from splatfix.explain.model import SURE
from splatfix.explain.reading import kept_lines
from splatfix.explain.signs import Log, find_signs
from splatfix.knowledge.failures import Wording, failures, spelled

ROOT = Path(__file__).resolve().parent.parent
CASES = ROOT / "tests" / "explain" / "cases"
RECORD = ROOT / "tests" / "records" / "explain.json"
BATCHES = ("2026-11-22",) * 13 + ("2026-11-25",) * 3 + ("2026-11-26",) * 17
"""Days on which the batches of ``held_out`` were looked at first, in this order."""
NONE = "none"
"""Among the classes that count as right: no class is, and none may be named."""
FOLDS = 5
BINS = (0.0, 0.3, 0.5, SURE, 0.85, 0.95, 1.0)
Case = Mapping[str, Any]
Answer = tuple[float, bool]
"""Confidence in the first cause (0 where there is none), and whether it is right."""


def rows_of(name: str) -> list[dict[str, Any]]:
    """The cases of one file as they stand there."""
    return [json.loads(line) for line in (CASES / f"{name}.jsonl").read_text("utf-8").splitlines()]


def read(name: str) -> list[Case]:
    """The cases of one file; they were labelled when classes were spelled with underscores."""
    return [{**row, "accept": list(map(spelled, row["accept"]))} for row in rows_of(name)]


def answer_to(case: Case, without: Collection[Wording] = frozenset()) -> Answer:
    """What is said of a case."""
    causes = explain_text(case["log"], without=without).causes
    if NONE in case["accept"] and (not causes or causes[0].confidence < SURE):
        return 0.0, True
    if not causes:
        return 0.0, False
    return causes[0].confidence, causes[0].name in case["accept"]


def summary(answers: Sequence[Answer]) -> dict[str, Any]:
    """Shares of cases: right first causes, wrong ones named as the cause, and none that sure."""
    right = sum(is_right for _, is_right in answers)
    wrong = sum(sure >= SURE and not is_right for sure, is_right in answers)
    return _shares(len(answers), right, wrong, sum(sure < SURE for sure, _ in answers))


def look_first() -> None:
    """Add what is said of the held-out cases that nobody has looked at yet."""
    rows = rows_of("held_out")
    for row, case in zip(rows, read("held_out"), strict=True):
        if "first" not in row:
            sure, is_right = answer_to(case)
            row["first"] = "right" if is_right else "wrong" if sure >= SURE else "missed"
            row["named"] = sure >= SURE
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (CASES / "held_out.jsonl").write_text(text, encoding="utf-8")


def first_look(cases: Sequence[Case]) -> dict[str, Any]:
    """The same shares by what was said of held-out cases the first time, with their intervals. It is never measured again."""
    first = Counter(case["first"] for case in cases)
    row = _shares(len(cases), first["right"], first["wrong"], first["missed"])
    row["top_1_interval"] = interval(first["right"], len(cases))
    row["wrong_interval"] = interval(first["wrong"], len(cases))
    if all("named" in case for case in cases):
        row["named"] = sum(case["named"] for case in cases)
        row["may_be_unnamed"] = sum(NONE in case["accept"] for case in cases)
    return row


def interval(count: int, total: int) -> list[float]:
    """Where a share lies with 95 % confidence: Wilson's interval (Wilson, JASA 22 (1927), p. 209)."""
    z = 1.96
    share, spread = count / total, z * z / total
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / total + spread / total / 4) / (1 + spread)
    return [round(max(middle - half, 0.0), 4), round(min(middle + half, 1.0), 4)]


def _shares(count: int, right: int, wrong: int, missed: int) -> dict[str, Any]:
    return {
        "cases": count,
        "top_1": round(right / count, 4),
        "wrong_while_confident": round(wrong / count, 4),
        "not_recognised": round(missed / count, 4),
    }


def by_wording(cases: Sequence[Case]) -> list[Answer]:
    """Each fold of sources explained without the wordings that only its own cases bear out."""
    matched = [_wordings_of(case) for case in cases]
    folds = [zlib.crc32(case["source"].partition("#")[0].encode()) % FOLDS for case in cases]
    elsewhere: dict[int, set[Wording]] = {fold: set() for fold in range(FOLDS)}
    for fold, wordings in zip(folds, matched, strict=True):
        for other in elsewhere.keys() - {fold}:
            elsewhere[other] |= wordings
    answers = []
    for case, wordings, fold in zip(cases, matched, folds, strict=True):
        answers.append(answer_to(case, frozenset(wordings - elsewhere[fold])))
    return answers


def _wordings_of(case: Case) -> set[Wording]:
    wordings: set[Wording] = set()
    for signs in find_signs(Log(kept_lines(case["log"])), None).values():
        wordings.update(sign.wording for sign in signs if sign.wording)
    return wordings


def by_class(cases: Sequence[Case]) -> list[Answer]:
    """Each case with a class explained without what is known of the classes that are right for it."""
    return [answer_to(case, _known_of(case["accept"])) for case in cases if NONE not in case["accept"]]


def _known_of(names: Sequence[str]) -> frozenset[Wording]:
    known: list[Wording] = []
    for name in names:
        failure = failures()[name]
        known += failure.wordings
        if failure.hint:
            known.append(failure.hint)
    return frozenset(known)


def calibration(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """For each range of confidence: how many cases, their mean confidence, and the share that is right."""
    rows = []
    for low, high in itertools.pairwise(BINS):
        within = [item for item in answers if low < item[0] <= high]
        if within:
            mean = sum(sure for sure, _ in within) / len(within)
            right = sum(good for _, good in within) / len(within)
            row = {"from": low, "to": high, "cases": len(within)}
            rows.append({**row, "confidence": round(mean, 3), "right": round(right, 3)})
    return rows


def record() -> dict[str, Any]:
    """Everything that is measured."""
    given, held = read("given"), read("held_out")
    wording = by_wording([*given, *held])
    first_looks = []
    for batch, date in enumerate(BATCHES):
        cases = [case for case in held if case.get("batch", 0) == batch]
        first_looks.append({"batch": batch, "date": date, **first_look(cases)})
    answers = {name: [answer_to(case) for case in read(name)] for name in ("given", "held_out", "made_here")}
    return {
        "given": summary(answers["given"]),
        "first_looks": first_looks,
        "held_out_now": summary(answers["held_out"]),
        "made_here": summary(answers["made_here"]),
        "wordings_held_out": summary(wording),
        "classes_held_out": summary(by_class([*given, *held])),
        "calibration": calibration(list(itertools.chain.from_iterable(answers.values()))),
        "calibration_wordings_held_out": calibration(wording),
        "classes": sum(bool(failure.wordings) for failure in failures().values()),
        "wordings": sum(len(failure.wordings) for failure in failures().values()),
    }


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(prog="python -m tools.explain_record", description=__doc__)
    parser.add_argument("--first-look", action="store_true", help="first judge the cases of a fresh batch")
    if parser.parse_args().first_look:
        look_first()
    RECORD.write_text(json.dumps(record(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
