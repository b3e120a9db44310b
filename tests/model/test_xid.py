"""The table of XIDs: whole, consistent, and where it differs from NVIDIA's action it says why."""

import pytest

from nodetopo.components.gpus.health.rules import HealthRules
from nodetopo.model.gpu_health import HealthClass
from nodetopo.model.xid import (
    MAX_CODES,
    OTHER,
    REPEATED,
    ROWS,
    SILENT,
    TABLE,
    Row,
    counted_code,
    xid,
)

FOLLOWS = {
    "RESTART_APP": HealthClass.APP,
    "IGNORE": HealthClass.APP,
    "RESET_GPU": HealthClass.RESET,
    "RESTART_BM": HealthClass.REBOOT,
    "RESTART_VM": HealthClass.REBOOT,
}

MILD = (
    *(8, 11, 14, 25, 32, *range(37, 42), 44, 60, 66, 67, 69, 70, 71, 72, 75, 76, 77, 80),
    *(*range(82, 87), 88, 89, 93, 94, *range(96, 109), *range(126, 136), 137, 139, 141),
    *(152, 153, 157, 160, 161),
)
"""Codes that NVIDIA's catalogue tells to ignore or to restart the application for, and that its
device plugin takes a GPU away for."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.codes[0]))
def test_a_class_follows_from_nvidias_action_or_says_why_not(row: Row) -> None:
    assert row.why or FOLLOWS.get(row.action or "") is row.kind


def test_no_code_has_two_rows() -> None:
    codes = [code for row in ROWS for code in row.codes]
    assert sorted(set(codes)) == sorted(codes)


def test_rows_and_their_codes_ascend() -> None:
    assert [row.codes[0] for row in ROWS] == sorted(row.codes[0] for row in ROWS)
    assert all(list(row.codes) == sorted(row.codes) for row in ROWS)


@pytest.mark.parametrize("code", MILD)
def test_what_nvidia_tells_to_ignore_or_restart_for_leaves_the_gpu_healthy(code: int) -> None:
    assert xid(code).kind is HealthClass.APP


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        (HealthClass.RESET, (46, 48, 62, 64, 74, 95, 110, 119, 120, 136, 140, 143, 155, 156, 158)),
        (HealthClass.REBOOT, (79, 151)),
        (HealthClass.DEGRADED, (63, 92, 109, 121, *range(144, 151), *range(162, 173))),
        (HealthClass.APP, (13, 31, 43, 45, 68, 154)),
    ],
)
def test_the_classes_that_matter_are_as_documented(
    kind: HealthClass, codes: tuple[int, ...]
) -> None:
    assert {xid(code).kind for code in codes} == {kind}


@pytest.mark.parametrize("code", [9, 173, 999, 10**9, OTHER])
def test_a_code_without_a_row_degrades(code: int) -> None:
    assert (xid(code).kind, xid(code).action) == (HealthClass.DEGRADED, None)


def test_special_codes_are_application_faults() -> None:
    assert {TABLE[code].kind for code in REPEATED | SILENT} == {HealthClass.APP}


def test_an_operators_class_comes_before_the_tables() -> None:
    rules = HealthRules(classes={79: HealthClass.APP, 13: HealthClass.RMA})
    kinds = [rules.kind_of(code) for code in (79, 13, 95)]
    assert kinds == [HealthClass.APP, HealthClass.RMA, HealthClass.RESET]


def test_codes_of_the_table_are_told_apart_whatever_else_came() -> None:
    full = range(1000, 1000 + MAX_CODES)
    assert [counted_code(code, full) for code in (79, 1000, 5000)] == [79, 1000, OTHER]
