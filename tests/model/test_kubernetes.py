"""Quantities, versions and truth values are read as Kubernetes and Go read them."""

import pytest

from nodetopo.model.kubernetes import go_bool, patch, quantity, release, size_text


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


@pytest.mark.parametrize(
    ("size", "text", "exact"),
    [
        (0, "0 bytes", "0 bytes"),
        (1, "1 byte", "1 byte"),
        (1023, "1023 bytes", "1023 bytes"),
        (1 << 16, "64Ki", "64Ki"),
        (2148 << 20, "2148Mi", "2148Mi"),
        (2 << 30, "2Gi", "2Gi"),
        (20000 << 30, "20000Gi", "20000Gi"),
        ((2148 << 20) + 1, "2.098Gi", "2.098Gi (2252341249 bytes)"),
        ((1 << 30) + 4096, "1Gi", "1Gi (1073745920 bytes)"),
        (2151677953 << 10, "2052Gi", "2052Gi (2203318223872 bytes)"),
    ],
)
def test_a_size_is_written_as_people_read_it(size: int, text: str, exact: str) -> None:
    assert size_text(size) == text
    assert size_text(size, is_exact=True) == exact
