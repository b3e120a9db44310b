"""Keys that stand twice: their lines, and what is lost."""

import pytest

from nodetopo.formats.document import repeated_keys


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("a: 1\nb: 2\n", []),
        (
            "a: 1\na: 1\n",
            ["a stands twice, lines 1 and 2: kubectl keeps the last, nothing is lost"],
        ),
        (
            "a: 1\na: 2\na: 3\n",
            ["a stands 3 times, lines 1, 2 and 3: kubectl keeps the last, 1, 2 are lost"],
        ),
        (
            "x:\n- a: {b: 1, c: [2, 3], d: 4, e: 5}\n  a: {b: 1}\n",
            [
                (
                    "a stands twice, lines 2 and 3: kubectl keeps the last, "
                    "c[0]: 2, c[1]: 3, d: 4 and 1 more are lost"
                )
            ],
        ),
        (
            '{"a": 1,\n"a": 2}',
            ["a stands twice, lines 1 and 2: kubectl keeps the last, 1 is lost"],
        ),
        (
            "a: &x {b: 1, b: 2}\nc: *x\n",
            ["b stands twice, lines 1 and 1: kubectl keeps the last, 1 is lost"],
        ),
        ("a: &x {b: 1}\nc: {<<: *x, <<: *x}\n", []),
    ],
)
def test_each_repeated_key_is_told_with_its_lines_and_its_loss(
    text: str, sentences: list[str]
) -> None:
    assert repeated_keys(text) == sentences


def test_what_is_no_yaml_is_refused() -> None:
    with pytest.raises(ValueError, match="not YAML"):
        repeated_keys("a: [")
