"""Failure classes: the vocabulary is whole and each class can be told."""

from __future__ import annotations

from splatfix.knowledge.failures import failure_class, failure_classes


def test_the_vocabulary() -> None:
    rows = failure_classes()
    assert len(rows) == 75 == len({row.name for row in rows})
    assert all(row.name.isidentifier() and row.name == row.name.lower() for row in rows)
    assert all(row.definition and row.fix and row.source for row in rows)


def test_one() -> None:
    row = failure_class("no_kernel_image")
    assert row is not None and "TORCH_CUDA_ARCH_LIST" in row.fix and row.examples
    assert failure_class("nothing") is None
