"""What becomes of a raw value."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetopo.components.labels.label import sanitise

VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""A label value that is not empty (k8s.io/apimachinery validation)."""


@given(st.text())
def test_any_text_becomes_a_valid_value_or_none(raw: str) -> None:
    value = sanitise(raw)
    assert value is None or VALUE.fullmatch(value)


@given(st.from_regex(VALUE, fullmatch=True))
def test_a_valid_value_stays_as_it_is(raw: str) -> None:
    assert sanitise(raw) == raw


@given(st.text())
def test_a_sanitised_value_is_not_changed_again(raw: str) -> None:
    value = sanitise(raw)
    assert value is None or sanitise(value) == value


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3"),
        ("Tesla  V100", "Tesla-V100"),
        (" PowerEdge R760xa\n", "PowerEdge-R760xa"),
        ("To be filled by O.E.M.", "To-be-filled-by-O.E.M"),
        ("ProLiant (DL380) Gen10+", "ProLiant-DL380-Gen10"),
        ("a\tb", "ab"),
        ("x" * 62 + " y", "x" * 62),
        ("...", None),
        ("", None),
        ("図", None),
    ],
)
def test_values_are_cut_to_what_the_api_server_takes(raw: str, value: str | None) -> None:
    assert sanitise(raw) == value
