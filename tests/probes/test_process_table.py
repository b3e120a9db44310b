"""The processes that a procfs shows, of this machine or of a directory."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from nodetopo.probes.process_table import commands, resident_bytes, started_at
from tests.probes.process_files import stat_line, write_process

PROC = Path("/proc")


def test_this_process_is_among_the_commands_of_this_machine() -> None:
    assert dict(commands(PROC))[os.getpid()][1:] == sys.orig_argv[1:]


def test_another_root_has_its_own_processes(tmp_path: Path) -> None:
    write_process(tmp_path, 12, "/usr/bin/kubelet", "--config=/x y")
    write_process(tmp_path, 2)
    (tmp_path / "self").mkdir()
    assert commands(tmp_path) == [(2, []), (12, ["/usr/bin/kubelet", "--config=/x y"])]
    assert psutil.PROCFS_PATH == "/proc"


def test_roots_that_threads_read_at_the_same_time_are_kept_apart(tmp_path: Path) -> None:
    roots = [tmp_path / str(number) for number in range(4)]
    for number, root in enumerate(roots):
        for pid in range(1, 40):
            write_process(root, pid, f"program-{number}")
    seen: list[set[str]] = [set() for _ in roots]

    def read(number: int) -> None:
        for _ in range(20):
            seen[number] |= {words[0] for _pid, words in commands(roots[number])}

    threads = [threading.Thread(target=read, args=(number,)) for number in range(len(roots))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [{f"program-{number}"} for number in range(len(roots))]


def test_a_process_that_ends_meanwhile_is_left_out(tmp_path: Path) -> None:
    write_process(tmp_path, 12, "stays")
    (tmp_path / "13").mkdir()
    write_process(tmp_path, 14, "odd", stat="14 (odd) S 1")
    write_process(tmp_path, 15, "hidden").joinpath("cmdline").unlink()
    assert commands(tmp_path) == [(12, ["stays"])]


def test_a_directory_that_is_not_there_has_no_processes(tmp_path: Path) -> None:
    assert commands(tmp_path / "none") == []


def test_arguments_that_are_not_utf_8_are_text(tmp_path: Path) -> None:
    write_process(tmp_path, 12).joinpath("cmdline").write_bytes(b"caf\xe9\0\xff\0")
    assert commands(tmp_path) == [(12, ["caf\ufffd", "\ufffd"])]


def test_the_start_of_a_process_counts_from_the_boot_of_its_root(tmp_path: Path) -> None:
    ticks = 50 * os.sysconf("SC_CLK_TCK")
    write_process(tmp_path, 12, "kubelet", stat=stat_line(12, "kubelet", started=ticks))
    assert started_at(tmp_path, 12) is None
    (tmp_path / "stat").write_text("cpu 1 2 3\nbtime 1700000000\n")
    assert started_at(tmp_path, 12) == 1_700_000_050
    assert started_at(tmp_path, 13) is None
    (tmp_path / "stat").write_text("cpu 1 2 3\n")
    assert started_at(tmp_path, 12) is None


def test_resident_memory_is_that_of_a_process_of_this_machine() -> None:
    resident = resident_bytes(os.getpid())
    assert resident is not None
    assert resident > 1 << 20


def test_a_process_that_has_ended_has_no_resident_memory() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert resident_bytes(process.pid) is None


@pytest.mark.parametrize(
    "modules", ["nodetopo.cli.run, nodetopo.kernel.app, nodetopo.probes.host.settings"]
)
def test_psutil_is_not_loaded_before_it_is_used(modules: str, tmp_path: Path) -> None:
    program = (
        f"import {modules}, pathlib, sys\n"
        "from nodetopo.probes.sysfs.host import Host, Roots\n"
        f"root = pathlib.Path({str(tmp_path)!r})\n"
        "Host(Roots(sysfs=root, procfs=pathlib.Path('/proc'), host=root)).read(())\n"
        "assert 'psutil' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
