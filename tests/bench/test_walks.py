"""The files that a walk enters; never how many."""

import pytest

from tests.bench.walks import ROOT, WALKS, entered, table


def test_a_walk_enters_files_of_the_process_and_of_the_nvml_child() -> None:
    files = entered(ROOT, "GPU to label")
    assert len(files) == len(set(files))
    assert {
        "nodetopo/cli/labels.py",
        "nodetopo/components/labels/gpu.py",
        "nodetopo/probes/nvml/child.py",
        "nodetopo/probes/nvml/gpu.py",
    } <= set(files)
    assert "nodetopo/model/limits.py" not in files, "imported only"


def test_the_table_has_a_line_for_each_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    file = "nodetopo/__main__.py"
    monkeypatch.setattr("tests.bench.walks.entered", lambda _checkout, _walk: [file])
    head, _, *rows = table((ROOT, ROOT)).splitlines()
    length = str((ROOT / "agent" / file).read_text("utf-8").count("\n"))
    assert head.count("files") == 2
    assert [row.strip("| ").split(" | ") for row in rows] == [
        [walk, *("1", "1", length) * 2] for walk in WALKS
    ]
