"""Bad usage and bad files: one line `error: cause — cure` each, nothing on stdout, exit 2."""

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given

from nodetopo.errors import DecodeError
from nodetopo.machines.bundled import machine
from nodetopo.model.codec import MAX_BYTES, decode, encode
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.matrix import matrix
from tests.cli.conftest import Cli
from tests.tools.importers.mutations import mutated

MATRIX = ("topo", "matrix")
SNAPSHOT = '{"schema": "nodetopo/v1", "gpus": [{"index": 0, "pci": "x"}]}'


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tpo",), "did you mean 'topo'?"),
        (("topo", "matrx"), "did you mean 'matrix'?"),
        (("labels", "--mashine", "x"), "did you mean '--machine'?"),
        (("labels", "--format", "json"), "see `nodetopo labels --help`"),
        (("--machine", "dgx-1v", "topo", "tree"), "write it after: `nodetopo topo … --machine …`"),
        (("topo", "--machine", "x", "tree"), "after: `nodetopo topo tree … --machine …`"),
        (("--vresion",), "did you mean '--version'?"),
        (("topo", "path", "GPU0"), "arguments are required: TO"),
        (("labels", "-o", "xml"), "'xml' is not one of table, short, json, yaml"),
        (("labels", "--machine", "dgx-h10"), "did you mean 'dgx-h100'?"),
        (("labels", "--machine", "dgx-1v", "--snapshot", "x"), "not allowed with"),
        (("labels", "--topo-m", "x", "--nccl-xml", "x"), "not allowed with"),
        (("labels", "--nccl-xml", "/nowhere/x.xml"), "cannot read /nowhere/x.xml"),
        (("nccl", "xlm"), "did you mean 'xml'?"),
        (("labels", "--snapshot", "/nowhere/x.json"), "cannot read /nowhere/x.json"),
        (("labels", "--snapshot", "/nowhere/\x1b[31mred\n"), "cannot read /nowhere/red"),
        (("labels", "--snapshot", "/dev/zero"), "/dev/zero is not a regular file"),
        (("labels", "--snapshot", "a\0b"), "cannot read"),
        (("allocate", "--machine", "dgx-1v"), "--size"),
        (("allocate", "--machine", "dgx-1v", "--size", "two"), "invalid int value: 'two'"),
        (("allocate", "--machine", "dgx-1v", "--size", "9"), "only 8 are available"),
        (("allocate", "--machine", "dgx-1v", "--size", "0"), "at least 1"),
        (("allocate", "--machine", "dgx-1v", "--size", "1", "--available", "GPU9"), "'GPU9'"),
        (("allocate", "--machine", "dgx-1v", "--size", "1", "--policy", "x"), "'x' is not one of"),
        (("explain", "NVL-01"), "did you mean 'NVL-001'?"),
        (("health", "--machine", "dgx-1v", "--only", "nvlnk"), "did you mean 'nvlink'?"),
        (("health", "--machine", "dgx-1v", "--only", "kubelet"), "checks nothing about kubelet"),
        (("audit", "--machine", "dgx-1v", "--pod", "a/b"), "no pod a/b on this node"),
        (("audit", "--machine", "dgx-1v", "--manifest", "/nowhere"), "cannot read /nowhere"),
        (("capture",), "-o"),
        (("capture", "--machine", "dgx-1v", "-o", "/"), "/ is a directory"),
        (("capture", "--machine", "dgx-1v", "-o", "/nowhere/x"), "cannot write /nowhere/x"),
        (("run", "--scan-intervall", "3"), "--scan-intervall"),
        (("run", "--scan-interval", "0.5"), "shorter than 1 s"),
        (("run", "--log-format", "jsn"), "did you mean 'json'?"),
        (("completion", "tcsh"), "'tcsh' is not one of bash, zsh, fish"),
        (("simulate", "machine"), "did you mean 'machines'?"),
    ],
)
def test_bad_usage_is_one_clear_line(cli: Cli, arguments: tuple[str, ...], words: str) -> None:
    outcome = cli(*arguments)
    assert (outcome.code, outcome.out) == (2, ""), outcome
    assert_one_line(outcome.err)
    assert words in outcome.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "schema: expected 'nodetopo/v1'"),
        (b'{"schema": "nodetopo/v9"}', "found 'nodetopo/v9'"),
        (SNAPSHOT.encode(), "gpus[0].pci: not a PCI address: 'x'"),
        (b"\xff\xfe{", "is not UTF-8 text"),
        (b"\tGPU0\tCPU Affinity\nGPU0\t X \t0-3\n", "use --topo-m"),
        (b"\n<system version='1'>", "use --nccl-xml"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_a_broken_snapshot_is_one_clear_line(
    cli: Cli,
    tmp_path: Path,
    content: bytes,
    words: str,
) -> None:
    path = tmp_path / "node.json"
    path.write_bytes(content)
    outcome = cli(*MATRIX, "--snapshot", str(path))
    assert (outcome.code, outcome.out) == (2, ""), outcome
    assert_one_line(outcome.err)
    assert words in outcome.err
    assert "node.json" in outcome.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no header"),
        ("no matrix\n", "no header"),
        ("\tGPU0\tGPU1\tCPU Affinity\n", "GPU0: its row is missing"),
        ("\tGPU0\tGPU1\nGPU0\tX\tXGMI\nGPU1\tXGMI\tX\n", "an AMD GPU"),
        ("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tFAR\t0-3\nGPU1\tFAR\t X \t0-3\n", "FAR"),
        (SNAPSHOT, "use --snapshot"),
        ("<system version='1'>", "use --nccl-xml"),
    ],
)
def test_a_broken_matrix_text_is_one_clear_line(cli: Cli, text: str, words: str) -> None:
    outcome = cli(*MATRIX, "--topo-m", "-", stdin=text)
    assert (outcome.code, outcome.out) == (2, ""), outcome
    assert_one_line(outcome.err)
    assert words in outcome.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not XML"),
        ("<system version='1'>", "not XML"),
        ("<system version='1'><cpu numaid='0'><pci busid='x'/></cpu></system>", "cpu[0].pci[0]"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "document type"),
        ("<graphs version='1'/>", "NCCL_GRAPH_FILE"),
        (SNAPSHOT, "use --snapshot"),
        ("\tGPU0\tCPU Affinity\nGPU0\t X \t0-3\n", "use --topo-m"),
    ],
)
def test_a_broken_topology_is_one_clear_line(cli: Cli, text: str, words: str) -> None:
    outcome = cli(*MATRIX, "--nccl-xml", "-", stdin=text)
    assert (outcome.code, outcome.out) == (2, ""), outcome
    assert_one_line(outcome.err)
    assert words in outcome.err


@pytest.mark.parametrize("flag", ["--snapshot", "--topo-m", "--nccl-xml"])
@pytest.mark.parametrize(
    ("text", "what", "cure"),
    [
        (
            "<!DOCTYPE nvidia_smi_log SYSTEM 'nvsmi_device_v13.dtd'>\n<nvidia_smi_log/>\n",
            "the output of `nvidia-smi -q -x`",
            "--topo-m",
        ),
        ("<!DOCTYPE topology SYSTEM 'hwloc2.dtd'><topology/>", "an hwloc topology", "capture"),
        ("nvidia.com/gpu.count=8\n", "the output of GPU feature discovery", "capture"),
        ('{"Data":{"PodDeviceEntries":null},"Checksum":1}', "the kubelet's checkpoint", "capture"),
    ],
    ids=["nvidia-smi", "hwloc", "gfd", "kubelet"],
)
def test_a_file_of_another_tool_is_named_whatever_the_flag(
    cli: Cli, flag: str, text: str, what: str, cure: str
) -> None:
    outcome = cli(*MATRIX, flag, "-", stdin=text)
    assert (outcome.code, outcome.out) == (2, ""), outcome
    assert_one_line(outcome.err)
    cause, _, rest = outcome.err.partition(" — ")
    assert f"error: -: this is {what}" in cause
    assert cure in rest


def test_a_directory_is_no_snapshot(cli: Cli, tmp_path: Path) -> None:
    outcome = cli(*MATRIX, "--snapshot", str(tmp_path))
    assert (outcome.code, outcome.err) == (2, f"error: {tmp_path} is a directory — name a file\n")


def test_a_named_pipe_is_refused_and_not_waited_for(cli: Cli, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)  # which never writes
    try:
        outcome = cli(*MATRIX, "--snapshot", str(tmp_path / "pipe"))
    finally:
        os.close(writer)
    assert (outcome.code, "pipe is not a regular file" in outcome.err) == (2, True)
    assert_one_line(outcome.err)


def test_the_pipe_of_a_shell_is_read(cli: Cli) -> None:
    reader, writer = os.pipe()
    os.write(writer, encode(machine("dgx-1v")).encode()[:60_000])
    os.close(writer)
    try:
        outcome = cli(*MATRIX, "--topo-m", f"/dev/fd/{reader}")
    finally:
        os.close(reader)
    assert "this is a snapshot — use --snapshot" in outcome.err


@pytest.mark.parametrize("name", ["/proc/kmsg", "/proc/self/status", "/dev/null", "/dev/tty"])
def test_a_file_of_the_kernel_is_refused_unread(cli: Cli, name: str) -> None:
    outcome = cli(*MATRIX, "--snapshot", name)
    assert (outcome.code, outcome.out) == (2, ""), outcome
    assert_one_line(outcome.err)
    assert f"{name} is not a regular file" in outcome.err or f"cannot read {name}" in outcome.err


def test_many_unknown_fields_are_one_warning(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    gpus = ", ".join(f'{{"index": {n}, "colour": "red"}}' for n in range(8))
    path.write_text(f'{{"schema": "nodetopo/v1", "gpus": [{gpus}]}}', "utf-8")
    outcome = cli(*MATRIX, "--snapshot", str(path))
    assert outcome.err == (
        f"warning: {path}: gpus[0].colour: unknown field, ignored (and 7 more like this)\n"
    )


def test_a_long_value_is_cut_in_the_error(cli: Cli) -> None:
    outcome = cli(*MATRIX, "--snapshot", "-", stdin=f'{{"schema": "{"x" * 100_000}"}}')
    assert outcome.code == 2
    assert_one_line(outcome.err)
    assert len(outcome.err) < 500


def test_a_file_over_the_cap_is_refused(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    outcome = cli(*MATRIX, "--snapshot", str(path))
    assert (outcome.code, "is larger than 16 MiB" in outcome.err) == (2, True)


def test_an_unreadable_manifest_names_its_file(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("{: [", encoding="utf-8")
    outcome = cli("audit", "--machine", "dgx-1v", "--manifest", str(path))
    assert (outcome.code, "pod.yaml" in outcome.err) == (2, True)
    assert_one_line(outcome.err)


def test_a_manifest_without_pods_is_refused(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "map.yaml"
    path.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n", encoding="utf-8")
    outcome = cli("audit", "--machine", "dgx-1v", "--manifest", str(path))
    assert outcome.code == 2
    assert_one_line(outcome.err)


def test_fields_of_a_newer_version_are_a_warning(
    cli: Cli, snapshot_file: Callable[..., Path]
) -> None:
    path = snapshot_file("dgx-1v")
    newer = path.read_text(encoding="utf-8").replace("{", '{\n "colour": "red",', 1)
    path.write_text(newer, encoding="utf-8")
    outcome = cli(*MATRIX, "--snapshot", str(path))
    assert (outcome.code, outcome.err) == (0, f"warning: {path}: colour: unknown field, ignored\n")


def test_a_snapshot_taken_without_nvml_is_a_warning(cli: Cli, tmp_path: Path) -> None:
    issue = ProbeIssue(probe="nvml", subject="library", reason="cannot load libnvidia-ml.so.1")
    path = tmp_path / "node.json"
    path.write_text(encode(Snapshot(issues=(issue,))), "utf-8")
    outcome = cli("labels", "--snapshot", str(path))
    assert outcome.err == (
        f"warning: {path}: holds no GPUs, NVML did not answer: cannot load libnvidia-ml.so.1\n"
    )


def test_a_warning_fails_a_strict_command(cli: Cli, snapshot_file: Callable[..., Path]) -> None:
    path = snapshot_file("dgx-1v")
    newer = path.read_text(encoding="utf-8").replace("{", '{\n "colour": "red",', 1)
    path.write_text(newer, encoding="utf-8")
    assert cli(*MATRIX, "--snapshot", str(path), "--strict").code == 1


def assert_one_line(text: str) -> None:
    """Hold that *text* is one `error: cause — cure` line that steers no terminal."""
    assert text.startswith("error: ")
    assert text.count("\n") == 1
    assert text.endswith("\n")
    assert " — " in text
    assert "\x1b" not in text


@pytest.mark.parametrize("flag", ["--snapshot", "--topo-m", "--nccl-xml"])
@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_are_refused_by_every_reader(
    cli: Cli,
    tmp_path: Path,
    flag: str,
    seed: int,
) -> None:
    random = Random(seed)
    path = tmp_path / "file"
    start = random.choice((b"", b"{", b"<system version='1'>", b"\tGPU0\tCPU Affinity\nGPU0\t"))
    path.write_bytes(start + random.randbytes(seed))
    outcome = cli(*MATRIX, flag, str(path))
    assert (outcome.code, outcome.out) == (2, ""), outcome
    assert_one_line(outcome.err)


@given(mutated(encode(machine("l40s-pcie-4"))))
def test_no_damage_to_a_snapshot_does_more_than_get_it_refused(text: str) -> None:
    try:
        decoded = decode(text)
    except DecodeError:
        return
    assert matrix(decoded.snapshot)
