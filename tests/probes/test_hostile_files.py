"""Files that mean harm, read by a process with little memory and little time.

The process has as much address space as it needs to start, and 64 MiB more, and seconds of the
processor's time: what takes more is killed by the kernel, and its test fails.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nodetopo.probes.kubelet.config import MAX_DROP_INS
from tests.probes.kubelet.kubelet_host import CONFIG, DROP_INS, HEADER

CHECKPOINT = "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
CPUS = "var/lib/kubelet/cpu_manager_state"

READER = """
import json, resource, sys
from pathlib import Path
from nodetopo.probes.kubelet.config import read_kubelet_settings
from nodetopo.probes.kubelet.state import read_kubelet_state

pages = int(Path("/proc/self/statm").read_text().split()[0])
room = pages * resource.getpagesize() + (64 << 20)
resource.setrlimit(resource.RLIMIT_AS, (room, room))
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
for host in map(Path, sys.argv[1:]):
    _settings, issues = read_kubelet_settings(host, host / "proc", history=True)
    _state, more = read_kubelet_state(host, None)
    print(json.dumps([f"{issue.subject}: {issue.reason}" for issue in (*issues, *more)]))
"""


def told(*hosts: Path) -> list[list[str]]:
    """Return for each host the issues of a process that reads all files of its kubelet."""
    found = subprocess.run(
        [sys.executable, "-c", READER, *hosts], check=False, capture_output=True, text=True
    )
    assert found.returncode == 0, (found.returncode, found.stderr[-2000:])
    return [json.loads(line) for line in found.stdout.splitlines()]


def put(host: Path, path: str, text: str) -> None:
    place = host / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, "utf-8")


def sparse(host: Path, path: str, start: str) -> None:
    """Write *start* and a hole, 100 MB long together."""
    put(host, path, start)
    with (host / path).open("r+b") as file:
        file.truncate(100_000_000)


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


YAMLS: dict[str, tuple[str, str]] = {
    "an alias bomb": (bomb(30), "more than 10000 nodes, aliases resolved"),
    "merges of merges": (
        "a0: &a0 {b: 1}\n"
        + "".join(f"a{n}: &a{n} {{<<: [{f'*a{n - 1}, ' * 9}]}}\n" for n in range(1, 30)),
        "more than 10000 nodes, aliases resolved",
    ),
    "an alias of itself": ("a: &a [*a]", "an alias inside what it stands for"),
    "brackets": ("a: " + "[" * 1_000_000, "nested more than 64 deep"),
    "braces": ("a: " + "{b: " * 250_000, "nested more than 64 deep"),
    "dashes": ("a:\n  " + "- " * 500_000, "nested more than 64 deep"),
    "a million letters": ("a: [" + "x," * 500_000 + "]", "more than 10000 nodes"),
    "a hundred thousand documents": ("---\n" * 100_000, "not a KubeletConfiguration"),
    "anchors": ("".join(f"a{n}: &a{n} x\n" for n in range(40_000)), "more than 10000 nodes"),
    "a number without end": ("maxPods: " + "9" * 1_000_000, "maxPods: expected a whole number"),
    "a key without end": ("? " + "x" * 1_000_000 + "\n: 1\n]", "not YAML"),
    "JSON of a million maps": ("[" + "{}," * 300_000 + "{}]", "more than 10000 nodes"),
    "an object of Python": ("a: !!python/object/apply:os.abort []", "not YAML"),
    "half a file": ('cpuManagerPolicyOptions: {"full-pcpus-only": "tr', "not YAML"),
    "nothing but tabs": ("\t" * 1_000_000, "not YAML"),
}


def test_a_hostile_configuration_is_an_issue_of_one_file(tmp_path: Path) -> None:
    for number, (text, _reason) in enumerate(YAMLS.values()):
        header = "" if text.startswith(("[", "---")) else HEADER
        put(tmp_path / str(number), CONFIG, header + text)
    lines = told(*(tmp_path / str(number) for number in range(len(YAMLS))))
    assert len(lines) == len(YAMLS)
    for name, found in zip(YAMLS, lines, strict=True):
        assert len(found) == 1, name
        assert found[0].startswith(f"/{CONFIG}: "), name
        assert YAMLS[name][1] in found[0], name


JSONS: dict[str, tuple[str, str]] = {
    "brackets": ("[" * 4_000_000, "more than 200000 values"),
    "braces": ('{"a":' * 100_000, "nested more than 64 deep"),
    "maps": ("[" + "{}," * 1_000_000 + "{}]", "more than 200000 values"),
    "as many maps as there may be": ("[" + "{}," * 60_000 + "{}]", "found list"),
    "numbers": ("[" + "9," * 2_000_000 + "9]", "more than 200000 values"),
    "a number without end": ("9" * 4_000_000, ""),
    "one text": ('"' + "x" * 4_000_000 + '"', "found str"),
    "a text that never ends": ('{"a": "' + "x" * 4_000_000, "not JSON"),
    "half a checkpoint": ('{"Data": {"PodDeviceEntries": [{"PodUID": "a', "not JSON"),
    "nothing": ("", "not JSON"),
    "holes only": ("\0" * 4096, "not JSON"),
}


def test_a_hostile_state_file_is_an_issue_of_one_file(tmp_path: Path) -> None:
    for number, (text, _reason) in enumerate(JSONS.values()):
        for path, content in ((CONFIG, HEADER), (CPUS, text), (CHECKPOINT, text)):
            put(tmp_path / str(number), path, content)
    lines = told(*(tmp_path / str(number) for number in range(len(JSONS))))
    for name, found in zip(JSONS, lines, strict=True):
        assert [line.split(": ")[0] for line in found] == [f"/{CPUS}", f"/{CHECKPOINT}"], name
        assert all(JSONS[name][1] in line for line in found), name


def test_all_cpus_for_everybody_are_an_issue(tmp_path: Path) -> None:
    put(tmp_path, CONFIG, HEADER)
    everybody = ", ".join(f'"{n}": {{"c": "0-8191"}}' for n in range(30_000))
    head = '"policyName": "static", "defaultCpuSet": ""'
    put(tmp_path, CPUS, f'{{{head}, "entries": {{{everybody}}}}}')
    assert told(tmp_path) == [[f"/{CPUS}: entries: more than 131072 CPUs"]]


@pytest.mark.parametrize(
    ("path", "size"), [(CONFIG, "1 MiB"), (CPUS, "4 MiB"), (CHECKPOINT, "4 MiB")]
)
@pytest.mark.parametrize("start", [HEADER, "{"], ids=["yaml", "json"])
def test_a_hundred_megabytes_are_not_read(tmp_path: Path, path: str, size: str, start: str) -> None:
    put(tmp_path, CONFIG, HEADER)
    sparse(tmp_path, path, start)
    assert told(tmp_path) == [[f"/{path}: larger than {size}"]]


def _many_words(host: Path) -> None:
    for number in range(MAX_DROP_INS):
        words = "".join(f"k{number}_{each}: 1\n" for each in range(300))
        put(host, f"{DROP_INS}/{number:03}.conf", HEADER + words)


def _many_aliases(host: Path) -> None:
    for number in range(MAX_DROP_INS):
        shared = f"x: &x {{{', '.join(f'a{each}: 1' for each in range(48))}}}\n"
        words = ", ".join(f"k{number}_{each}: *x" for each in range(98))
        put(host, f"{DROP_INS}/{number:03}.conf", f"{HEADER}{shared}systemReserved: {{{words}}}\n")


def _many_folders(host: Path) -> None:
    for number in range(80):
        (host / DROP_INS / f"{number:03}" / ("x/" * 14)).mkdir(parents=True)


@pytest.mark.parametrize(
    ("write", "reasons"),
    [
        (_many_words, []),
        (_many_aliases, ["systemReserved: more than 4096 entries"]),
        (_many_folders, ["more than 64 drop-ins or 1024 names"]),
    ],
)
def test_hostile_drop_ins_are_passed_over_or_an_issue(
    tmp_path: Path, write: Callable[[Path], None], reasons: list[str]
) -> None:
    put(tmp_path, CONFIG, HEADER)
    write(tmp_path)
    assert [line.partition(f"{DROP_INS}: ")[2] for line in told(tmp_path)[0]] == reasons
