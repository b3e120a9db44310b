"""The file of measured bandwidths is read as YAML and as JSON, or refused in one line."""

import json
from pathlib import Path

import pytest
import yaml

from nodetopo.errors import InputError
from nodetopo.kernel.settings.data_files import load, parse


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not YAML"),
        ("[1, 2]", "t.yaml: not a bandwidth table"),
        ('{"kind": NaN}', "kind: expected"),
        ("kind: x", "kind: expected 'nodetopo-bandwidth-table', found 'x'"),
        ("a: &a [*a]", "an alias inside what it stands for"),
        ("kind: a\nkind: b", "the key 'kind' stands twice in one map"),
        ("&a [" * 65 + "]" * 65, "nested more than 64 deep"),
        (f"kind: {'9' * 5000}", "not YAML"),
        ("x" * ((1 << 18) + 1), "larger than 256 KiB of YAML — save it as JSON"),
    ],
)
def test_a_file_that_is_no_bandwidth_table_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError) as raised:
        parse("t.yaml", text)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_bandwidth_table_is_read_as_yaml_and_as_json(tmp_path: Path) -> None:
    document = {
        "kind": "nodetopo-bandwidth-table",
        "version": 1,
        "unit": "GB/s",
        "pairs": [{"gpus": [0, 1], "bandwidth": 24.1}],
    }
    path = tmp_path / "table"
    found = []
    for text in (json.dumps(document), yaml.safe_dump(document)):
        path.write_text(text, encoding="utf-8")
        found.append(load(path))
    assert found[0] == found[1]
    assert [entry.tenths_gb_s for entry in found[0].pairs] == [241]


def test_a_bandwidth_table_must_be_a_file_of_text(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    for name, words in (("none", "is not a file"), (".", "is not a file"), ("bytes", "not UTF-8")):
        with pytest.raises(InputError, match=words):
            load(tmp_path / name)
