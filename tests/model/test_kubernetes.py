"""Quantities, versions and truth values are read as Kubernetes and Go read them."""

import pytest

from agent.model.kubernetes import go_bool, patch, quantity, release


@pytest.mark.parametrize(
    ("text", "per_unit", "number"),
    [
        ("4", 1, 4),
        ("1500m", 1000, 1500),
        ("1.5", 1000, 1500),
        (".5", 1000, 500),
        ("2Gi", 1, 2 << 30),
        ("2G", 1, 2_000_000_000),
        ("1e3", 1, 1000),
        ("1E", 1, 10**18),
        ("1E3", 1, 1000),
        ("100n", 1000, 1),
        ("-1", 1, -1),
        ("0.1m", 1000, 1),
    ],
)
def test_a_quantity_is_read_as_kubernetes_reads_it(text: str, per_unit: int, number: int) -> None:
    assert quantity(text, per_unit=per_unit) == number


@pytest.mark.parametrize("text", ["", "x", "1Zi", "1.2.3", ".", "1 Gi", "1e", "0x10", "1KiB"])
def test_text_that_is_not_a_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        quantity(text)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("v1.36.3", (1, 36)),
        ("1.36.3", (1, 36)),
        ("v1.37", (1, 37)),
        ("v1.33.5-gke.1162000", (1, 33)),
        ("v1.34.1+k3s1", (1, 34)),
        ("v1.35.0-alpha.0.123+abc", (1, 35)),
        (None, None),
        ("", None),
        ("unknown", None),
        ("v1", None),
        ("v1.36.3\nx", None),
        ("v1." + "9" * 5000, None),
    ],
)
def test_a_version_is_its_major_and_minor(
    version: str | None, expected: tuple[int, int] | None
) -> None:
    assert release(version) == expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [("v1.36.3", 3), ("1.33.5-gke.1", 5), ("v1.37", None), ("", None), (None, None)],
)
def test_a_version_may_have_a_patch_number(version: str | None, expected: int | None) -> None:
    assert patch(version) == expected


@pytest.mark.parametrize("text", ["1", "t", "T", "true", "TRUE", "True"])
def test_every_true_word_of_go_is_true(text: str) -> None:
    assert go_bool(text) is True


@pytest.mark.parametrize("text", ["0", "f", "F", "false", "FALSE", "False"])
def test_every_false_word_of_go_is_false(text: str) -> None:
    assert go_bool(text) is False


@pytest.mark.parametrize(
    "text", ["", "yes", "no", "on", "off", "2", "-1", "01", "tRUE", "fALSE", " true", "true\n"]
)
def test_a_word_that_go_refuses_is_neither_true_nor_false(text: str) -> None:
    assert go_bool(text) is None
