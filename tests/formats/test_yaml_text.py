"""Documents written as YAML for people."""

import yaml

from nodetopo.formats.yaml import yaml_text

DOCUMENTS: list[dict[str, object]] = [{"b": 1, "a": "one\ntwo\n"}, {"c": "x" * 40 + " " + "y" * 40}]


def test_keys_stay_in_order_and_texts_of_several_lines_are_blocks() -> None:
    text = yaml_text(DOCUMENTS, width=1000)
    assert text.splitlines() == [
        "b: 1",
        "a: |",
        "  one",
        "  two",
        "---",
        f"c: {DOCUMENTS[1]['c']}",
    ]
    assert list(yaml.safe_load_all(text)) == DOCUMENTS


def test_long_lines_break_at_the_width() -> None:
    words = "word " * 30
    assert max(map(len, yaml_text([{"c": words.strip()}], width=50).splitlines())) < 60
