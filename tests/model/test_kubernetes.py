"""Versions of Kubernetes as the distributions write them."""

import pytest

from agent.model.kubernetes import release


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
