"""How the kubelet's two decoders find a key."""

import pytest

from nodetopo.model.kubelet_keys import KEYS, OddKey, spelled


@pytest.mark.parametrize(
    ("key", "exact", "in_any_case"),
    [
        ("maxPods", "maxPods", "maxPods"),
        ("MAXPODS", None, "maxPods"),
        ("maxPod", None, None),
        ("", None, None),
    ],
)
def test_a_key_is_matched_in_its_case_or_in_any_case(
    key: str, exact: str | None, in_any_case: str | None
) -> None:
    assert spelled(key, KEYS, any_case=False) == exact
    assert spelled(key, KEYS, any_case=True) == in_any_case


def test_the_path_of_a_key_starts_at_the_top() -> None:
    assert OddKey(key="x", file="f").path == "x"
    assert OddKey(key="x", within="memorySwap", file="f").path == "memorySwap.x"
