"""Sizes of the sets of GPUs that our driver publishes."""

import pytest

from nodetopo.errors import InputError
from tests.kernel.settings.resolving import resolve


@pytest.mark.parametrize(
    ("yaml", "value"),
    [
        ("dra-set-sizes: 8, 2", (2, 8)),
        ("dra-set-sizes: [4, 4]", (4,)),
        ("dra-set-sizes: 3", (3,)),
        ("dra-set-sizes: auto", ()),
    ],
)
def test_a_value_is_read(yaml: str, value: object) -> None:
    assert resolve(yaml).settings.dra_set_sizes == value


@pytest.mark.parametrize(
    ("yaml", "words"),
    [
        ("dra-set-sizes: 0", "'0' where auto, or numbers up to"),
        ("dra-set-sizes: two", "'two' where auto, or numbers up to"),
    ],
)
def test_what_does_not_do_is_refused(yaml: str, words: str) -> None:
    with pytest.raises(InputError) as raised:
        resolve(yaml)
    assert words in str(raised.value)
