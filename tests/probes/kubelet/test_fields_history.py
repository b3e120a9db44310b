"""Files that the running kubelet does not go by: changed too late, or never loaded."""

import os
from pathlib import Path

import pytest

from tests.probes.kubelet.kubelet_host import CONFIG, DROP_INS, HEADER, process, read_whole
from tests.probes.process_files import stat_line

FILE = "--config=/var/lib/kubelet/config.yaml"
FOLDER = f"--config-dir=/{DROP_INS}"
BOOTED = 1_700_000_000
STARTED = BOOTED + 50
"""A kubelet that started 50 s after the machine."""

TICKS_PER_S = os.sysconf("SC_CLK_TCK")

RUNNING = {
    **process("/usr/bin/kubelet", FILE, FOLDER),
    "proc/812/stat": stat_line(812, "kube (x) let", started=50 * TICKS_PER_S),
    "proc/stat": f"cpu  1 2 3\nbtime {BOOTED}\nprocesses 9\n",
}


def touched(tmp_path: Path, times: dict[str, int]) -> tuple[str, ...] | None:
    files = dict.fromkeys(times, HEADER)
    read_whole(tmp_path, {**RUNNING, **files})
    for name, second in times.items():
        os.utime(tmp_path / name, (second, second))
    return read_whole(tmp_path, {}, history=True).changed_since_start


def test_files_written_after_the_start_are_named(tmp_path: Path) -> None:
    times = {
        CONFIG: STARTED - 10,
        f"{DROP_INS}/a.conf": STARTED + 10,
        f"{DROP_INS}/b/c.conf": STARTED + 10_000,
    }
    assert touched(tmp_path, times) == (f"/{DROP_INS}/a.conf", f"/{DROP_INS}/b/c.conf")


def test_the_same_second_does_not_count(tmp_path: Path) -> None:
    assert touched(tmp_path, {CONFIG: STARTED + 2, f"{DROP_INS}/a.conf": STARTED}) == ()


@pytest.mark.parametrize("gone", ["proc/812/stat", "proc/stat"])
def test_without_the_start_it_is_not_known(tmp_path: Path, gone: str) -> None:
    files = {name: text for name, text in RUNNING.items() if name != gone}
    files |= {CONFIG: HEADER, f"{DROP_INS}/a.conf": HEADER}
    assert read_whole(tmp_path, files, history=True).changed_since_start is None


def test_an_unreadable_start_is_not_known(tmp_path: Path) -> None:
    files = {**RUNNING, "proc/812/stat": "812 (kubelet) S 1", CONFIG: HEADER}
    files[f"{DROP_INS}/a.conf"] = HEADER
    assert read_whole(tmp_path, files, history=True).changed_since_start is None


def test_a_kubelet_inside_k3s_began_later_than_its_process(tmp_path: Path) -> None:
    files = {
        **RUNNING,
        "proc/812/cmdline": "/usr/local/bin/k3s server\0",
        "var/lib/rancher/k3s/agent/etc/kubelet.conf.d/00-k3s-defaults.conf": HEADER,
        "etc/rancher/node/password": "of every node",
    }
    assert read_whole(tmp_path, files, history=True).changed_since_start is None


def test_history_is_read_on_request_only(tmp_path: Path) -> None:
    settings = read_whole(tmp_path, {**RUNNING, CONFIG: HEADER, f"{DROP_INS}/a.conf": HEADER})
    assert (settings.changed_since_start, settings.unloaded_drop_ins) == (None, None)


def test_files_with_another_ending_are_not_loaded(tmp_path: Path) -> None:
    files = {
        **RUNNING,
        CONFIG: HEADER,
        f"{DROP_INS}/a.conf": HEADER,
        f"{DROP_INS}/b.yaml": HEADER,
        f"{DROP_INS}/c.conf.bak": HEADER,
        f"{DROP_INS}/README.json": "{}",
    }
    found = read_whole(tmp_path, files, history=True)
    assert found.unloaded_drop_ins == (f"/{DROP_INS}/b.yaml",)


def test_a_directory_that_no_flag_names_is_not_loaded(tmp_path: Path) -> None:
    files = {
        CONFIG: HEADER,
        f"{DROP_INS}/a.conf": HEADER,
        **process("/usr/bin/kubelet", FILE),
    }
    found = read_whole(tmp_path, files, history=True)
    assert found.unloaded_drop_ins == (f"/{DROP_INS}/a.conf",)


def test_a_linked_directory_is_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "etc/kubernetes").mkdir(parents=True)
    (tmp_path / DROP_INS).symlink_to("real")
    files = {**RUNNING, CONFIG: HEADER, "etc/kubernetes/real/a.conf": HEADER}
    found = read_whole(tmp_path, files, history=True)
    assert found.unloaded_drop_ins == (f"/{DROP_INS}/a.conf",)


def test_all_loaded_is_not_unknown(tmp_path: Path) -> None:
    files = {**RUNNING, CONFIG: HEADER, f"{DROP_INS}/a.conf": HEADER}
    assert read_whole(tmp_path, files, history=True).unloaded_drop_ins == ()


def test_unloaded_files_are_unknown_without_a_process(tmp_path: Path) -> None:
    found = read_whole(tmp_path, {CONFIG: HEADER, f"{DROP_INS}/b.yaml": HEADER}, history=True)
    assert found.unloaded_drop_ins is None
