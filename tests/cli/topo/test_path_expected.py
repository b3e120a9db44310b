"""`topo path`: what two devices should carry, and a set of GPUs."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.cli.conftest import Cli

SCHEMAS = Path(__file__).parents[3] / "docs/reference/schema"
NODE = ("--machine", "dgx-h100")


def test_a_pair_of_gpus_has_its_range_and_source(cli: Cli) -> None:
    for style in ("table", "short"):
        out = cli("topo", "path", "0", "7", *NODE, "-o", style).out
        assert out.splitlines()[-4:-1] == [
            "  expected  369 to 414 GB/s",
            "  over      18 NVLinks",
            "  factors   0.82 to 0.92 of 450 GB/s payload",
        ]
        assert out.splitlines()[-1].startswith("  sources   NVIDIA/nvbandwidth README; ")
        assert "Azure/azurehpc-health-checks" in out


def test_each_factor_behind_a_figure_has_a_row(cli: Cli) -> None:
    out = cli("topo", "path", "0", "NIC5", *NODE).out
    start = out.index("  factors")
    assert out[start : out.index("  sources")] == (
        "  factors   0.15 to 1 of 49.5 GB/s\n"
        "            0.87 of 63 GB/s on PCIe\n"
        "            0.95 to 0.99 of the line rate of one port\n"
    )
    document = json.loads(cli("topo", "path", "0", "NIC5", *NODE, "-o", "json").out)
    assert document["expected"]["assumes"] == (
        "0.15 to 1 of 49.5 GB/s (0.87 of 63 GB/s on PCIe, "
        "0.95 to 0.99 of the line rate of one port)"
    )


@pytest.mark.parametrize(
    ("ends", "low", "busbw"),
    [(("GPU0", "GPU1"), 369.0, True), (("GPU0", "mlx5_0"), 47.5, False)],
)
def test_json_has_the_same(cli: Cli, ends: tuple[str, str], low: float, *, busbw: bool) -> None:
    document = json.loads(cli("topo", "path", *ends, *NODE, "-o", "json").out)
    schema = json.loads((SCHEMAS / "topo-path.json").read_text("utf-8"))
    Draft202012Validator(schema).validate(document)
    assert document["expected"]["gb_per_s"]["low"] == low
    assert document["expected_as_built"] is None
    assert (document["expected_busbw"] is not None) is busbw


def test_nothing_is_expected_between_two_hcas(cli: Cli) -> None:
    document = json.loads(cli("topo", "path", "NIC0", "NIC1", *NODE, "-o", "json").out)
    assert document["expected"] is None
    assert "expected" not in cli("topo", "path", "NIC0", "NIC1", *NODE).out


def test_three_gpus_and_more_have_what_they_carry_together(cli: Cli) -> None:
    outcome = cli("topo", "path", *"01234567", *NODE)
    assert outcome.code == 0
    assert "expected bus bandwidth 475 to 480 GB/s\n  over     NVSwitch\n" in outcome.out
    assert outcome.out.count("→") == 28
    document = json.loads(cli("topo", "path", *"012", *NODE, "-o", "json").out)
    schema = json.loads((SCHEMAS / "topo-set.json").read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(document)
    assert [one["to"] for one in document["pairs"]] == ["GPU1", "GPU2", "GPU2"]


@pytest.mark.parametrize(
    ("names", "more", "error"),
    [
        (("0", "1", "NIC0"), (), "NIC0 is no GPU"),
        (("0", "1", "0"), (), "GPU0 is named twice"),
        (("0", "1", "2"), ("-o", "svg"), "between two devices"),
    ],
)
def test_a_set_is_of_gpus(
    cli: Cli, names: tuple[str, ...], more: tuple[str, ...], error: str
) -> None:
    outcome = cli("topo", "path", *names, *NODE, *more)
    assert (outcome.code, outcome.out) == (2, "")
    assert error in outcome.err


def test_a_text_without_generations_expects_nothing_and_says_why(cli: Cli) -> None:
    text = cli("topo", "matrix", *NODE).out
    out = cli("topo", "path", "0", "1", "--topo-m", "-", stdin=text).out
    assert "expected  not known: the NVLink generation of GPU0 is not known" in out


def test_a_table_of_another_operation_is_named(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "table.yaml"
    sets = "sets:\n- {gpus: [0, 1], bandwidth: 351}\n- {gpus: [0, 1, 2], bandwidth: 352}\n"
    head = "kind: nodetopo-bandwidth-table\nversion: 1\nunit: GB/s\n"
    file.write_text(f"{head}operation: all_gather_perf\n{sets}", encoding="utf-8")
    arguments = ("topo", "path", "--machine", "dgx-h100", "--bandwidth-table", str(file))
    shown = cli(*arguments, "0", "1", "2").out
    assert "expected bus bandwidth of all_gather_perf 352 GB/s" in shown
    assert f"bandwidth table {file}, by all_gather_perf" in shown
    pair = json.loads(cli(*arguments, "0", "1", "-o", "json").out)["expected_busbw"]
    assert pair["source"] == f"bandwidth table {file}, by all_gather_perf"
    file.write_text(f"{head}{sets}", encoding="utf-8")
    assert "expected bus bandwidth 352 GB/s" in cli(*arguments, "0", "1", "2").out
