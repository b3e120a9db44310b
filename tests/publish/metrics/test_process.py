"""What the process uses, as the client library would say it."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, ProcessCollector

from agent.publish.metrics.process import process_metrics, read_process

CHANGING = {"process_cpu_seconds_total", "process_open_fds"}


def test_names_and_values_are_those_of_the_client_library() -> None:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    theirs = {
        sample.name: (family.type, sample.value)
        for family in registry.collect()
        for sample in family.samples
    }
    ours = {
        sample.name: (family.type, sample.value)
        for family in process_metrics(read_process())
        for sample in family.samples
    }
    assert ours.keys() == theirs.keys()
    for name, (kind, value) in theirs.items():
        assert ours[name][0] == kind
        if name not in CHANGING:  # the memory may grow by a page or two between the readings
            assert ours[name][1] == pytest.approx(value, rel=0.2), name


def test_without_procfs_only_the_cpu_time_is_known(tmp_path: Path) -> None:
    assert read_process(tmp_path) is None
    assert [family.name for family in process_metrics(None)] == ["process_cpu_seconds"]


def test_a_command_may_be_called_anything(tmp_path: Path) -> None:
    (tmp_path / "self" / "fd").mkdir(parents=True)
    (tmp_path / "self" / "fd" / "0").touch()
    fields = ["S", *("0" for _ in range(18)), "250", "4096", "3", "0"]
    (tmp_path / "self" / "stat").write_text(f"7 (a) S (b)) {' '.join(fields)}")
    (tmp_path / "stat").write_text("cpu 1 2\nbtime 1000\n")
    found = read_process(tmp_path)
    assert found is not None
    assert (found.virtual_bytes, found.open_files) == (4096, 1)
    assert found.started_at == pytest.approx(1002.5, abs=2)  # 100 ticks a second, as a rule
