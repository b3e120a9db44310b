"""Truth values are those of Go's ``strconv.ParseBool``, and no others."""

import pytest

from agent.model.kubernetes import go_bool


@pytest.mark.parametrize("text", ["1", "t", "T", "true", "TRUE", "True"])
def test_each_word_that_go_takes_for_true_is_true(text: str) -> None:
    assert go_bool(text) is True


@pytest.mark.parametrize("text", ["0", "f", "F", "false", "FALSE", "False"])
def test_each_word_that_go_takes_for_false_is_false(text: str) -> None:
    assert go_bool(text) is False


@pytest.mark.parametrize(
    "text", ["", "yes", "no", "on", "off", "2", "-1", "01", "tRUE", "fALSE", " true", "true\n"]
)
def test_what_is_an_error_in_go_is_neither(text: str) -> None:
    assert go_bool(text) is None
