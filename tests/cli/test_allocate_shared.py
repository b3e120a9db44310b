"""`nodetopo allocate` for MIG instances and time-sliced replicas."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from nodetopo.machines.bundled import machine
from tests.cli.conftest import Cli

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs/reference/schema/allocate.json").read_text("utf-8")
)
REPLICAS = ("--machine", "dgx-1v", "--replicas", "4")
IDS = tuple(gpu.id for gpu in machine("dgx-1v").gpus)
MIG_NODE = Path(__file__).parents[1] / "nodes" / "h100x8-nvswitch-2numa-mig" / "snapshot.json"
MIG = ("--snapshot", str(MIG_NODE), "--mig")


def answer(cli: Cli, *arguments: str) -> Any:
    done = cli("allocate", *arguments, "-o", "json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    Draft202012Validator(SCHEMA).validate(found)
    return found


@pytest.mark.parametrize(
    ("policy", "chosen"),
    [
        ("best", [f"{IDS[0]}::0", f"{IDS[3]}::0"]),
        ("distributed", [f"{IDS[0]}::0", f"{IDS[3]}::0"]),
        ("packed", [f"{IDS[0]}::0", f"{IDS[0]}::1"]),
    ],
)
def test_replicas_are_spread_unless_packed(cli: Cli, policy: str, chosen: list[str]) -> None:
    found = answer(cli, *REPLICAS, "--size", "2", "--policy", policy)
    assert found["chosen"] == chosen


def test_a_replica_is_named_by_its_gpu_and_number(cli: Cli) -> None:
    found = answer(cli, *REPLICAS, "--size", "1", "--required", "GPU5::2")
    assert (found["chosen"], found["indices"]) == ([f"{IDS[5]}::2"], [5])


def test_a_gpu_stands_for_all_of_its_replicas(cli: Cli) -> None:
    found = answer(cli, *REPLICAS, "--size", "3", "--available", "GPU5,GPU6::1")
    # The others of GPU6 are in use: a third one there would join three, on GPU5 it joins two.
    assert found["chosen"] == [f"{IDS[5]}::{number}" for number in range(3)]


def test_people_see_counts_by_gpu(cli: Cli) -> None:
    request = ("--size", "3", "--available", "GPU5,GPU6::1,GPU6::2,GPU6::3", "-o", "short")
    assert cli("allocate", *REPLICAS, *request).out == "2 of GPU5, 1 of GPU6\n"


def test_mig_instances_are_packed_and_keep_whole_gpus_whole(cli: Cli) -> None:
    found = answer(cli, *MIG, "1g.10gb", "--size", "2")
    assert (len(found["chosen"]), len(found["indices"])) == (2, 1)
    assert found["reasons"][0] == "2 MIG instances on GPU0"


def test_a_profile_may_be_written_as_in_the_resource_name(cli: Cli) -> None:
    answers = [answer(cli, *MIG, profile, "--size", "1") for profile in ("1g.10gb", "mig-1g.10gb")]
    assert answers[0] == answers[1]


def test_a_profile_that_is_not_there_lists_those_that_are(cli: Cli) -> None:
    done = cli("allocate", *MIG, "7g.80gb", "--size", "1")
    assert done.code == 2
    assert done.err.endswith("'7g.80gb' — this node has 1g.10gb, 3g.40gb\n")


def test_why_not_compares_shares_by_their_own_terms(cli: Cli) -> None:
    request = (*REPLICAS, "--size", "2", "--policy", "packed", "--why-not")
    split = answer(cli, *request, "GPU0::0,GPU1::0")["why_not"]
    assert (split["lost_at"], split["verdict"]) == ("gpus", "loses on GPUs touched, 2 against 1")
    alike = answer(cli, *request, "GPU0::2,GPU0::3")["why_not"]
    assert (alike["lost_at"], alike["verdict"]) == (None, "equal in every term")


@pytest.mark.parametrize("form", ["table", "short", "yaml"])
def test_every_format_works(cli: Cli, form: str) -> None:
    request = (*REPLICAS, "--size", "5", "--explain", "--why-not", "GPU0,GPU1::0")
    assert cli("allocate", *request, "-o", form).code == 0
