"""`nodetopo allocate`: policies, models, tables, and a set that somebody else would take."""

import json
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from nodetopo.allocation.rules import Policy
from nodetopo.machines.bundled import machine
from nodetopo.model.codec import encode
from nodetopo.model.gpu import RemappedRows
from nodetopo.model.pci import PcieLink
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.cli.conftest import Cli

DGX = ("allocate", "--machine", "dgx-1v")
SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs/reference/schema/allocate.json").read_text("utf-8")
)
TABLE = """
kind: nodetopo-bandwidth-table
version: 1
machine: DGX-1V
unit: GB/s
pairs: [{gpus: [0, 1], bandwidth: 24.1}]
sets: [{gpus: [0, 5], bandwidth: 80}]
"""


def answer(cli: Cli, *arguments: str, stdin: str = "") -> Any:
    """Return the JSON of a request on a DGX-1V, which has to fit the schema."""
    done = cli(*DGX, *arguments, "-o", "json", stdin=stdin)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    Draft202012Validator(SCHEMA).validate(found)
    return found


@pytest.mark.parametrize(
    ("policy", "indices"),
    [
        ("best", [0, 4]),  # 50 GB/s, the others 25 or 7
        ("numa-first", [0, 1]),
        ("packed", [0, 4]),  # 1 and 5 are left with 50 GB/s
        ("distributed", [0, 4]),
        ("nic-required", [0, 4]),  # 0 and 1 would share an HCA
    ],
)
def test_each_policy_takes_what_its_first_term_wants(
    cli: Cli, policy: str, indices: list[int]
) -> None:
    found = answer(cli, "--size", "2", "--available", "0,1,4,5", "--policy", policy)
    assert (found["policy"], found["indices"]) == (policy, indices)


def test_the_reasons_follow_the_order_of_the_policy(cli: Cli) -> None:
    arguments = ("--size", "2", "--available", "0,1,4", "--policy", "numa-first")
    found = answer(cli, *arguments)
    assert "next best GPU0 GPU4: loses on NUMA nodes, 2 against 1" in found["reasons"]


def test_the_scores_are_printed_in_the_order_of_the_policy(cli: Cli) -> None:
    arguments = ("--size", "2", "--policy", "nic-required", "--explain")
    out = cli(*DGX, *arguments).out
    terms = [line.split()[0] for line in out.partition("scores\n")[2].splitlines()[1:]]
    assert terms[:5] == ["degraded", "hca_far", "rail_loss", "hca_distance", "bandwidth_gb_s"]


def test_the_first_line_says_what_it_was_judged_by(cli: Cli) -> None:
    first = cli(*DGX, "--size", "2", "--policy", "numa-first").out.splitlines()[0]
    assert first == "GPU0 GPU3   proven optimal   policy numa-first, model ring, engine table"


def test_the_relay_model_lets_a_gpu_pass_data_on(cli: Cli) -> None:
    request = ("--size", "4", "--available", "0,1,2,4", "--bandwidth-model")
    ring, relay = answer(cli, *request, "ring"), answer(cli, *request, "relay")
    found = [(one["model"], one["score"]["bandwidth_gb_s"]) for one in (ring, relay)]
    assert found == [("ring", 7.0), ("relay", 50.0)]
    assert relay["reasons"][0].startswith("50 GB/s by relay, data passed on by GPUs of the set")


@pytest.mark.parametrize("model", ["ring", "relay", "table"])
def test_a_measured_figure_wins_over_every_model(cli: Cli, tmp_path: Path, model: str) -> None:
    path = tmp_path / "table.yaml"
    path.write_text(TABLE, encoding="utf-8")
    arguments = ("--size", "2", "--bandwidth-table", str(path), "--bandwidth-model", model)
    found = answer(cli, *arguments)
    assert (found["indices"], found["score"]["bandwidth_gb_s"]) == ([0, 5], 80.0)
    assert found["reasons"][0].startswith("80 GB/s as measured, ")


def test_a_table_says_how_much_it_covers(cli: Cli) -> None:
    done = cli(*DGX, "--size", "2", "--bandwidth-table", "-", stdin=TABLE)
    assert done.err == "note: -: measured: 1 of 28 pairs, 1 of 28 sets of 2\n"


def test_why_not_says_at_which_term_a_set_loses(cli: Cli) -> None:
    found = answer(cli, "--size", "2", "--why-not", "GPU0,5")["why_not"]
    assert (found["indices"], found["lost_at"]) == ([0, 5], "bandwidth_gb_s")
    assert found["verdict"] == "loses on bandwidth, 7 against 50"
    short = cli(*DGX, "--size", "2", "--why-not", "0,5", "-o", "short").out
    assert short == "GPU0 GPU3\nnot GPU0 GPU5: loses on bandwidth, 7 against 50\n"
    table = cli(*DGX, "--size", "2", "--why-not", "0,5").out
    way = "between NUMA nodes (SYS)"
    assert table.endswith(
        "why not GPU0 GPU5\n"
        "  loses on bandwidth, 7 against 50\n"
        f"  7 GB/s by ring, over PCIe generation 3, at worst {way}\n"
        "  on NUMA nodes 0 and 1, 2 sockets\n"
        "  one HCA each: mlx5_0, mlx5_2, through one PCIe switch (PIX)\n"
    )


def test_the_next_best_sets_are_compared_as_why_not_compares_them(cli: Cli) -> None:
    arguments = ("--size", "2", "--available", "0,1,4,5")
    rows = cli(*DGX, *arguments).out.partition("next best\n")[2].splitlines()
    assert rows == [
        "  GPU1 GPU5  equal in every term, the lower GPU numbers win",
        "  GPU0 GPU1  loses on bandwidth, 25 against 50",
        "  GPU4 GPU5  loses on bandwidth, 25 against 50",
    ]


@pytest.mark.parametrize(
    ("other", "verdict"),
    [
        ("0,3", "this is the set that is chosen"),
        ("1,2", "equal in every term, the lower GPU numbers win"),
    ],
)
def test_why_not_is_honest_about_equal_sets(cli: Cli, other: str, verdict: str) -> None:
    assert answer(cli, "--size", "2", "--why-not", other)["why_not"]["verdict"] == verdict


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--policy", "numa-frist"), "did you mean 'numa-first'?"),
        (("--bandwidth-model", "realy"), "did you mean 'relay'?"),
        (("--bandwidth-model", "table"), "add --bandwidth-table FILE"),
        (("--bandwidth-table", "/nonexistent"), "cannot read /nonexistent"),
        (("--bandwidth-table", "-"), "-: not a bandwidth table"),
        (("--bandwidth-table", "-", "--topo-m", "-"), "--topo-m"),
        (("--why-not", "0"), "--why-not names 1, the request is for 2"),
        (("--why-not", "0,9"), "unknown GPU '9'"),
        (("--why-not", "0,1", "--required", "2"), "lacks what is required: GPU2 "),
        (("--why-not", "0,1", "--available", "2,3"), "required but not available"),
        (("--replicas", "0"), "--replicas: 0 is out of range"),
        (("--replicas", "129"), "give 1 to 128"),
        (("--replicas", "2", "--mig", "1g.5gb"), "not allowed with argument"),
        (("--replicas", "2", "--required", "GPU0::2"), "unknown device 'GPU0::2'"),
        (("--mig", "1g.5gb"), "this node has no MIG instances"),
        (("--policy", "nvidia", "--why-not", "0,1"), "does not go with --why-not"),
        (("--policy", "nvidia", "--replicas", "2"), "does not go with --replicas"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_with_a_cure(
    cli: Cli, arguments: tuple[str, ...], words: str
) -> None:
    done = cli(*DGX, "--size", "2", *arguments)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert done.err.count("\n") == 1
    assert " — " in done.err


def test_a_table_on_another_machine_names_the_entry(cli: Cli) -> None:
    arguments = ("--machine", "hgx-a100-4", "--size", "2", "--bandwidth-table", "-")
    done = cli("allocate", *arguments, stdin=TABLE)
    assert done.code == 2
    assert "-: sets[0].gpus: unknown GPU '5'" in done.err


def test_one_stream_cannot_be_two_files(cli: Cli) -> None:
    done = cli("allocate", "--size", "1", "--topo-m", "-", "--bandwidth-table", "-", stdin="GPU0")
    assert (done.code, "standard input can be read only once" in done.err) == (2, True)


def test_completion_knows_the_words(cli: Cli) -> None:
    script = cli("completion", "bash").out
    assert "words='best numa-first packed distributed nic-required nvidia'" in script
    assert "words='ring relay table'" in script


def test_degraded_gpus_are_those_of_the_flag_or_those_that_look_degraded(
    cli: Cli, tmp_path: Path
) -> None:
    request = ("--size", "1", "--available", "0,1")
    assert answer(cli, *request)["indices"] == [0]
    assert answer(cli, *request, "--degraded", "0")["indices"] == [1]

    node = machine("dgx-1v")
    rows = RemappedRows(correctable=0, uncorrectable=1, is_pending=True, has_failed=False)
    first = replace(node.gpus[0], remapped_rows=rows)
    path = tmp_path / "snapshot.json"
    path.write_text(encode(replace(node, gpus=(first, *node.gpus[1:]))), "utf-8")
    found = json.loads(cli("allocate", "--snapshot", str(path), *request, "-o", "json").out)
    assert found["indices"] == [1]


def test_a_file_without_gpus_does_not_tell_that_the_node_has_none(cli: Cli) -> None:
    switches_alone = """<system version="1"><cpu numaid="0">
        <pci busid="0000:45:00.0"><pci busid="0000:4f:00.0"/></pci>
    </cpu></system>"""
    done = cli("allocate", "--size", "2", "--nccl-xml", "-", stdin=switches_alone)
    assert (done.code, done.out) == (3, "")
    assert "error: could not tell which GPUs there are: the file names none" in done.err


def test_a_snapshot_without_nvml_does_not_tell_that_the_node_has_no_gpus(
    cli: Cli, tmp_path: Path
) -> None:
    issue = ProbeIssue(probe="nvml", subject="library", reason="cannot load libnvidia-ml.so.1")
    path = tmp_path / "node.json"
    path.write_text(encode(Snapshot(issues=(issue,))), "utf-8")
    done = cli("allocate", "--size", "1", "--snapshot", str(path))
    assert done.code == 3
    assert "could not tell which GPUs there are: cannot load libnvidia-ml.so.1" in done.err


def test_a_node_known_to_have_no_gpu_is_bad_input(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text(encode(Snapshot()), "utf-8")
    done = cli("allocate", "--size", "1", "--snapshot", str(path))
    assert (done.code, "this node has none" in done.err) == (2, True)


def asked_json(cli: Cli, *arguments: str, stdin: str) -> Any:
    """What the command prints as JSON."""
    done = cli(*arguments, "-o", "json", stdin=stdin)
    assert done.code == 0, done.err
    return json.loads(done.out)


def with_lanes(name: str, lanes: Mapping[int, int | None]) -> str:
    """The machine as a file, with *lanes* of x16 at some GPUs; None is not reported."""
    snapshot = machine(name)
    gpus = (
        replace(gpu, pcie=replace(gpu.pcie or PcieLink(), width=lanes[gpu.index], max_width=16))
        if gpu.index in lanes
        else gpu
        for gpu in snapshot.gpus
    )
    return encode(replace(snapshot, gpus=tuple(gpus)))


@pytest.mark.parametrize("policy", Policy)
def test_a_gpu_with_few_lanes_is_no_jobs_first_choice(cli: Cli, policy: Policy) -> None:
    stdin = with_lanes("rtxpro6000-pcie-8", {5: 4})
    for size, asked in product(("1", "2", "4"), ((), ("--available", "4,5,6,7"))):
        if (size, asked) == ("4", ("--available", "4,5,6,7")):
            continue
        found = asked_json(
            cli,
            "allocate",
            "--snapshot",
            "-",
            "--size",
            size,
            "--policy",
            policy,
            *asked,
            stdin=stdin,
        )
        assert 5 not in found["indices"]
        assert found["score"]["degraded"] == 0
        assert "GPU5 comes last: it is degraded (4 of 16 PCIe lanes)" in found["reasons"]


def test_an_nvswitch_does_not_make_up_for_lanes(cli: Cli) -> None:
    stdin = with_lanes("dgx-h100", {3: 4})
    found = asked_json(
        cli, "allocate", "--snapshot", "-", "--size", "2", "--available", "2,3,4,5", stdin=stdin
    )
    assert found["indices"] == [4, 5]


def test_where_all_gpus_lack_lanes_they_rank_as_ever(cli: Cli) -> None:
    every = with_lanes("dgx-h100", dict.fromkeys(range(8), 8))
    for size in range(1, 9):
        asked = ("allocate", "--snapshot", "-", "--size", str(size))
        narrow = asked_json(cli, *asked, stdin=every)
        wide = asked_json(cli, *asked, stdin=encode(machine("dgx-h100")))
        assert (narrow["indices"], narrow["score"]["degraded"]) == (wide["indices"], size)


def test_lanes_that_are_not_reported_degrade_nothing(cli: Cli) -> None:
    stdin = with_lanes("dgx-h100", {0: None, 1: None})
    found = asked_json(cli, "allocate", "--snapshot", "-", "--size", "2", stdin=stdin)
    assert (found["indices"], found["score"]["degraded"]) == ([0, 1], 0)
