"""`nodetopo nccl check`: logs in, a verdict out, and a table that placement follows."""

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from nodetopo.machines.bundled import machine
from nodetopo.model.codec import encode
from tests.cli.conftest import Cli
from tests.tools.bandwidth import logs

SCHEMA = Path(__file__).parents[2] / "docs/reference/schema/nccl-check.json"
H100 = machine("dgx-h100")
NODE = ("--machine", "dgx-h100")
GOOD = logs.nccl_tests(H100, range(8), 478.25)
LOW = logs.nccl_tests(H100, range(8), 300.0)


def test_a_figure_in_its_range_passes(cli: Cli) -> None:
    outcome = cli("nccl", "check", "-", *NODE, stdin=GOOD)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == (
        "nccl-tests: 1 figure on node dgx-h100\n"
        "✓ all_reduce_perf GPU0 to GPU7  478.2 GB/s, expected 475 to 480 GB/s\n"
    )
    assert cli("nccl", "check", "-", *NODE, "-o", "short", stdin=GOOD).out == ""


def test_a_figure_below_its_gate_fails(cli: Cli) -> None:
    outcome = cli("nccl", "check", "-", *NODE, stdin=LOW)
    assert outcome.code == 1
    assert "300.0 GB/s, expected 475 to 480 GB/s, fails below 313.2" in outcome.out
    assert "no check of this node explains it" in outcome.out


def test_a_shortfall_names_the_check_that_explains_it(cli: Cli, node_snapshot: Path) -> None:
    log = logs.nvbandwidth(H100, {}, 390.0, host=13.5)
    outcome = cli("nccl", "check", "-", "--snapshot", str(node_snapshot), stdin=log)
    assert outcome.code == 1
    assert "explained by PCI-001" in outcome.out
    assert "as the node is now: 13.7 GB/s" in outcome.out
    assert "`nodetopo explain PCI-001`" in outcome.out
    assert "observed x4" in outcome.out
    short = cli("nccl", "check", "-", "--snapshot", str(node_snapshot), "-o", "short", stdin=log)
    assert "explained by PCI-001 PCIe link width of GPUs" in short.out


@pytest.fixture
def node_snapshot(tmp_path: Path) -> Path:
    """Return a DGX H100 whose GPU 3 trained to four lanes."""
    gpus = list(H100.gpus)
    link = gpus[3].pcie
    assert link is not None
    gpus[3] = replace(gpus[3], pcie=replace(link, width=4, max_width=16))
    path = tmp_path / "node.json"
    path.write_text(encode(replace(H100, gpus=tuple(gpus))), "utf-8")
    return path


def test_strict_fails_on_a_warning(cli: Cli) -> None:
    log = logs.nccl_tests(H100, range(8), 465.0, largest=16 * logs.GIB)
    assert cli("nccl", "check", "-", *NODE, stdin=log).code == 0
    assert cli("nccl", "check", "-", *NODE, "--strict", stdin=log).code == 1


def test_an_error_in_the_log_fails_and_its_warnings_do_with_strict(cli: Cli) -> None:
    failed = GOOD + "h: Test NCCL failure common.cu:12 'internal error'\n"
    outcome = cli("nccl", "check", "-", *NODE, stdin=failed)
    assert outcome.code == 1
    assert "✗ line " in outcome.out
    warned = GOOD + "h:1:1 [0] NCCL WARN Connection closed\n"
    assert cli("nccl", "check", "-", *NODE, stdin=warned).code == 0
    assert cli("nccl", "check", "-", *NODE, "--strict", stdin=warned).code == 1


@pytest.mark.parametrize(
    "log",
    [
        logs.nccl_tests(H100, range(8), 90.0, hosts=("a", "b")),
        logs.nvbandwidth(H100, {}, 390.0, has_addresses=False),
        logs.nccl_tests(machine("dgx-a100"), range(8), 230.0),
        logs.perftest("mlx5_0", 3.0, test="RDMA_Write Latency"),
    ],
)
def test_what_cannot_be_compared_is_exit_status_3(cli: Cli, log: str) -> None:
    assert cli("nccl", "check", "-", *NODE, stdin=log).code == 3


def test_numbers_of_a_log_can_be_named(cli: Cli) -> None:
    log = logs.nvbandwidth(H100, {}, 390.0, has_addresses=False)
    outcome = cli("nccl", "check", "-", *NODE, "--gpus", "0,1,2,3,4,5,6,7", stdin=log)
    assert (outcome.code, "28 pairs" in outcome.out) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("-",), "not a log of a bandwidth test"),
        (("-", "--gpus", "0,9"), "unknown GPU '9'"),
        (("-", "--gpus", "0,0"), "names a GPU twice"),
        (("-", "--hca", "GPU0"), "GPU0 is no HCA"),
        (("-", "--hca", "mlx5_0"), "--hca is for logs of perftest"),
        (("-", "--save", "-"), "a bandwidth table is kept in a file"),
        (("missing.log",), "missing.log"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(
    cli: Cli, arguments: tuple[str, ...], error: str
) -> None:
    text = "hello\n" if "not a log" in error else GOOD
    outcome = cli("nccl", "check", *arguments, *NODE, stdin=text)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ")
    assert error in outcome.err
    assert " — " in outcome.err


def test_standard_input_is_read_once(cli: Cli) -> None:
    outcome = cli("nccl", "check", "-", "--snapshot", "-", stdin=GOOD)
    assert (outcome.code, "only once" in outcome.err) == (2, True)


@pytest.mark.parametrize(
    "log",
    [
        GOOD,
        LOW,
        logs.perftest("mlx5_7", 90.0, gpu=str(H100.gpus[0].pci)[5:10]),
        logs.nvbandwidth(H100, {(0, 1): 3.0}, 390.0, host=13.5),
        logs.nccl_tests(H100, range(8), 90.0, hosts=("a", "b")),
        GOOD + "h: Test NCCL failure common.cu:12 'internal error'\n",
    ],
)
def test_json_has_the_shape_that_the_schema_promises(cli: Cli, log: str, tmp_path: Path) -> None:
    save = ("--save", str(tmp_path / "t.json"))
    for more in ((), save):
        outcome = cli("nccl", "check", "-", *NODE, "-o", "json", *more, stdin=log)
        document = json.loads(outcome.out)
        schema = json.loads(SCHEMA.read_text("utf-8"))
        Draft202012Validator.check_schema(schema)
        Draft202012Validator(schema).validate(document)
        assert (document["saved"] is None) is (not more)
    as_yaml = cli("nccl", "check", "-", *NODE, "-o", "yaml", stdin=log)
    assert yaml.safe_load(as_yaml.out)["schema"] == "nodetopo/nccl-check/v1"


def test_hostile_names_in_a_log_steer_no_terminal(cli: Cli) -> None:
    log = GOOD.replace("node-a", "\x1b]0;x\x07n").replace("all_reduce_perf", "\x1b[2Jperf")
    outcome = cli("nccl", "check", "-", *NODE, stdin=log + "\x1b[1m NCCL WARN \x1b[2J\n")
    assert "\x1b" not in outcome.out + outcome.err


def test_placement_follows_what_was_saved(cli: Cli, tmp_path: Path) -> None:
    dgx1 = ("--machine", "dgx-1v")
    snapshot = machine("dgx-1v")
    before = json.loads(cli("allocate", *dgx1, "--size", "2", "-o", "json").out)["indices"]
    # The pair that the model prefers was measured slow, another one fast.
    a, b = before
    other = (4, 7) if set(before) != {4, 7} else (1, 2)
    slow = {(a, b): 5.0, (b, a): 5.0, other: 47.0, other[::-1]: 47.0}
    log = logs.nvbandwidth(snapshot, slow, 20.0)
    table = tmp_path / "table.yaml"
    outcome = cli("nccl", "check", "-", *dgx1, "--save", str(table), stdin=log)
    assert "28 added, 0 replaced" in outcome.err
    after = cli("allocate", *dgx1, "--size", "2", "-o", "json", "--bandwidth-table", str(table))
    assert json.loads(after.out)["indices"] == sorted(other)
    assert "measured: 28 of 28 pairs" in after.err
    shown = cli("topo", "path", str(a), str(b), *dgx1, "--bandwidth-table", str(table))
    assert shown.out.endswith(
        "  expected  5.0 GB/s\n"
        "  over      measured\n"
        "  factors   the node is as it was when it was measured\n"
        f"  sources   bandwidth table {table}\n"
    )


@pytest.mark.parametrize("name", ["table.yaml", "table.json"])
def test_a_table_is_merged_and_what_is_replaced_is_said(
    cli: Cli, tmp_path: Path, name: str
) -> None:
    table = tmp_path / name
    pairs = logs.nvbandwidth(H100, {}, 390.0)
    cli("nccl", "check", "-", *NODE, "--save", str(table), stdin=pairs)
    outcome = cli("nccl", "check", "-", *NODE, "--save", str(table), stdin=GOOD)
    assert "1 added, 0 replaced, 28 kept" in outcome.err
    again = cli("nccl", "check", "-", *NODE, "--save", str(table), stdin=LOW)
    assert "was 478.2 GB/s, now 300" in again.err
    assert "devices that fell short" in again.err
    whole = yaml.safe_load(table.read_text("utf-8"))
    assert (len(whole["pairs"]), len(whole["sets"])) == (28, 1)
    assert [path.name for path in tmp_path.iterdir()] == [name]  # nothing beside it


def test_a_file_that_is_no_table_of_this_machine_stays_as_it_is(cli: Cli, tmp_path: Path) -> None:
    table = tmp_path / "table.yaml"
    other = "pairs: [{gpus: [0, 33], bandwidth: 3}]\n"
    head = "kind: nodetopo-bandwidth-table\nversion: 1\nunit: GB/s\n"
    for text in ("a: b\n", head + other):
        table.write_text(text, "utf-8")
        outcome = cli("nccl", "check", "-", *NODE, "--save", str(table), stdin=GOOD)
        assert (outcome.code, outcome.err.count("error: ")) == (2, 1)
        assert table.read_text("utf-8") == text


def test_hca_figures_are_not_saved_and_it_says_so(cli: Cli, tmp_path: Path) -> None:
    table = tmp_path / "table.yaml"
    log = logs.perftest("mlx5_0", 390.0)
    outcome = cli("nccl", "check", "-", *NODE, "--save", str(table), stdin=log)
    assert "not HCAs and hosts" in outcome.err
    assert not table.exists()
    assert outcome.code == 0


def test_waivers_and_severities_of_checks_count(
    cli: Cli, node_snapshot: Path, tmp_path: Path
) -> None:
    waived = tmp_path / "checks.yaml"
    waived.write_text("waivers: [{code: PCI-001, reason: known, until: 2999-01-01}]\n", "utf-8")
    log = logs.nvbandwidth(H100, {}, 390.0, host=13.5)
    outcome = cli(
        "nccl",
        "check",
        "-",
        "--snapshot",
        str(node_snapshot),
        "--checks-file",
        str(waived),
        stdin=log,
    )
    assert "explained by PCI-001" not in outcome.out
