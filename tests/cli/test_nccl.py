"""`nodetopo nccl xml`, and the two texts of other tools as the source of every reader."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from nodetopo.machines.bundled import machine
from nodetopo.model.codec import encode
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.guest import on_host
from nodetopo.nccl.xml import topology_xml
from nodetopo.tools.capture.scrub import Substitutes, scrubbed
from tests.cli.conftest import Cli
from tests.cli.outcome import MACHINES, Outcome
from tests.nccl.test_guest import virtual

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "schema" / "nccl-xml.json"
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("topo", "matrix"),
    ("topo", "tree"),
    ("topo", "path", "0", "1"),
    ("labels",),
    ("health",),
    ("audit",),
    ("allocate", "--size", "2"),
    ("nccl", "env"),
    ("nccl", "xml"),
)
CUT = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV2\t0-3\n"
FUSED = "b200x8-16nic-fused-cells.txt"
GRAPH = "azure-ncv4-graph.xml"
"""The captures that no reader takes: cells were lost, another schema."""


@pytest.mark.parametrize("name", MACHINES)
def test_the_xml_of_a_machine_is_printed(cli: Cli, name: str) -> None:
    outcome = cli("nccl", "xml", "--machine", name)
    assert outcome == Outcome(code=0, out=topology_xml(machine(name)), err="")


def test_the_json_holds_the_same_text(cli: Cli) -> None:
    outcome = cli("nccl", "xml", "--machine", "dgx-h100", "-o", "json")
    document = json.loads(outcome.out)
    Draft202012Validator(json.loads(SCHEMA.read_text("utf-8"))).validate(document)
    assert document == {
        "schema": "nodetopo/nccl-xml/v1",
        "xml": topology_xml(machine("dgx-h100")),
    }


@pytest.fixture
def like(cli: Cli, tmp_path: Path) -> Callable[..., Outcome]:
    """Run ``nccl xml --like`` on two snapshots."""

    def run(guest: Snapshot, host: Snapshot, *flags: str) -> Outcome:
        files = [tmp_path / "guest.json", tmp_path / "host.json"]
        for file, snapshot in zip(files, (guest, host), strict=True):
            file.write_text(encode(snapshot), "utf-8")
        return cli("nccl", "xml", "--snapshot", str(files[0]), "--like", str(files[1]), *flags)

    return run


def test_a_virtual_machine_is_printed_like_its_host(like: Callable[..., Outcome]) -> None:
    host = machine("dgx-h100")
    guest = virtual(host, layout="two", shows_numa=True)
    assert like(guest, host) == Outcome(
        code=0, out=topology_xml(on_host(guest, host).snapshot), err=""
    )


def test_a_device_that_is_not_the_hosts_is_named(like: Callable[..., Outcome]) -> None:
    host = machine("dgx-h100")
    guest = virtual(host, layout="two", shows_numa=True)
    guest = replace(guest, gpus=(replace(guest.gpus[0], uuid="GPU-1"), *guest.gpus[1:]))
    outcome = like(guest, host, "-o", "json")
    why = "the host has no GPU GPU-1"
    assert outcome.err == f"warning: GPU0 stays where the guest shows it: {why}\n"
    document = json.loads(outcome.out)
    Draft202012Validator(json.loads(SCHEMA.read_text("utf-8"))).validate(document)
    assert document["devices"][:2] == [
        {"device": "GPU0", "host": None, "by": None, "reason": why},
        {"device": "GPU1", "host": "GPU1", "by": "UUID", "reason": None},
    ]
    assert like(guest, host, "--strict").code == 1


def test_a_snapshot_of_another_machine_is_no_host(like: Callable[..., Outcome]) -> None:
    outcome = like(virtual(machine("dgx-h100")), machine("dgx-a100"))
    assert (outcome.code, outcome.out) == (2, "")
    assert "host.json: no device of the guest is one of the host's (GPU0: " in outcome.err


def test_substitutes_of_a_scrubbed_snapshot_match_nothing(like: Callable[..., Outcome]) -> None:
    host = machine("dgx-h100")
    after, _ = scrubbed(host, Substitutes())
    for guest, other, name in (
        (virtual(host), after, "host.json"),
        (virtual(after), host, "the guest's snapshot"),
    ):
        outcome = like(guest, other)
        assert (outcome.code, outcome.out) == (2, "")
        assert f"{name}: its UUIDs and GUIDs are substitutes" in outcome.err
        assert "capture it without --scrub" in outcome.err


def test_one_standard_input_is_not_two_snapshots(cli: Cli) -> None:
    outcome = cli("nccl", "xml", "--snapshot", "-", "--like", "-", stdin="{}")
    assert outcome.code == 2
    assert "standard input is named twice" in outcome.err


def test_a_host_in_another_format_is_refused_by_name(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "topo.xml"
    file.write_text(cli("nccl", "xml", "--machine", "dgx-h100").out, "utf-8")
    outcome = cli("nccl", "xml", "--machine", "dgx-h100", "--like", str(file))
    assert (outcome.code, outcome.out) == (2, "")
    assert "topo.xml" in outcome.err


def test_a_matrix_text_does_not_suffice(cli: Cli, topo_m_file: Callable[[str], Path]) -> None:
    outcome = cli("nccl", "xml", "--topo-m", str(topo_m_file("dgx-1v")))
    assert (outcome.code, outcome.out) == (3, "")
    assert "the place of GPU0 in the PCI tree is not known" in outcome.err


def test_what_was_written_is_a_source_again(cli: Cli) -> None:
    text = cli("nccl", "xml", "--machine", "dgx-h100").out
    again = cli("nccl", "xml", "--nccl-xml", "-", stdin=text)
    assert again == Outcome(code=0, out=text, err="")


def test_a_cut_matrix_is_read_with_a_warning(cli: Cli) -> None:
    outcome = cli("topo", "matrix", "--topo-m", "-", "-o", "json", stdin=CUT)
    assert (outcome.code, json.loads(outcome.out)["cells"], outcome.err) == (
        0,
        [["X", "NV2"], ["NV2", "X"]],
        (
            "warning: -: rows: 1 of 2 rows are missing, from GPU1 on\n"
            "warning: -: affinities: cut, or not to be told apart without tabs: GPU0\n"
        ),
    )


def test_a_cut_matrix_fails_a_strict_command(cli: Cli) -> None:
    assert cli("topo", "matrix", "--topo-m", "-", "--strict", stdin=CUT).code == 1


def test_cells_that_only_missing_rows_tell_print_as_unknown(cli: Cli) -> None:
    text = "\tGPU0\tNIC0\tNIC1\tCPU Affinity\nGPU0\t X \tPIX\tSYS\t0-3\n"
    rows = cli("topo", "matrix", "--topo-m", "-", stdin=text).out.splitlines()[1:4]
    assert [row.split("\t")[:4] for row in rows] == [
        ["GPU0", " X ", "PIX", "SYS"],
        ["NIC0", "PIX", " X ", "?"],
        ["NIC1", "SYS", "?", " X "],
    ]


def test_every_capture_prints_its_own_cells(cli: Cli, corpus: Path) -> None:
    differing = []
    for capture in _captures(corpus, "topo-m/*.txt", FUSED):
        source = ("--topo-m", str(capture))
        printed = cli("topo", "matrix", *source)
        plain = json.loads(cli("topo", "matrix", *source, "-o", "json").out)["cells"]
        captured = _cells(capture.read_text("utf-8"), len(plain))
        is_same = _cells(printed.out, len(plain))[: len(captured)] == captured
        if printed.code or not is_same or plain[: len(captured)] != captured:
            differing.append(capture.name)
    assert differing == []


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_answers_from_every_matrix(
    cli: Cli,
    corpus: Path,
    command: tuple[str, ...],
) -> None:
    for capture in _captures(corpus, "topo-m/*.txt", FUSED):
        _answers(capture, cli(*command, "--topo-m", str(capture)))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_answers_from_every_topology(
    cli: Cli,
    corpus: Path,
    command: tuple[str, ...],
) -> None:
    for capture in _captures(corpus, "nccl-xml/*.xml", GRAPH):
        _answers(capture, cli(*command, "--nccl-xml", str(capture)))


def _answers(capture: Path, outcome: Outcome) -> None:
    """Hold that a command answered, or said in one line what the file does not hold.

    Without GPUs there is nothing to label, which is an empty answer.
    """
    if outcome.code == 0 or (outcome.code in (1, 3) and outcome.out):
        return
    errors = [line for line in outcome.err.splitlines() if not line.startswith("warning: ")]
    expected = r"error: (unknown device|.*[Oo]nly [01] |the place of|there is no|could not tell)"
    assert outcome.code in (2, 3), (capture.name, outcome)
    assert len(errors) == 1, (capture.name, outcome)
    assert re.match(expected, errors[0]), (capture.name, outcome)


def _captures(corpus: Path, pattern: str, refused: str) -> list[Path]:
    captures = [path for path in sorted(corpus.glob(pattern)) if path.name != refused]
    assert captures, "the corpus holds no captures"
    return captures


def _cells(text: str, size: int) -> list[list[str]]:
    """Read the cells of a matrix by a way of its own: row by row, words by position."""
    row = re.compile(r"\s*(?:GPU|NIC|DD|mlx[45]_)\d+\s+(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC)\s.*")
    rows = [line.split() for line in text.splitlines() if row.fullmatch(line + " ")]
    return [[word.replace("SOC", "SYS") for word in words[1 : size + 1]] for words in rows]
