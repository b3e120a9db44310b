"""`nodetopo allocate --policy nvidia`: what theirs would take, and how ours compares."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from nodetopo.machines.bundled import machine
from tests.cli.conftest import Cli

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs/reference/schema/allocate-nvidia.json").read_text("utf-8")
)


def answer(cli: Cli, name: str, available: str, size: int) -> Any:
    arguments = ("--machine", name, "--available", available, "--size", str(size))
    done = cli("allocate", *arguments, "--policy", "nvidia", "-o", "json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    Draft202012Validator.check_schema(SCHEMA)
    Draft202012Validator(SCHEMA).validate(found)
    return found


def test_its_set_is_compared_with_ours_term_by_term(cli: Cli) -> None:
    ids = [gpu.id for gpu in machine("dgx-1v").gpus]
    found = answer(cli, "dgx-1v", "0,2,4,5", 2)
    assert (found["answer"], found["crash"], found["problem"]) == (ids[4:6], False, None)
    assert found["ours"]["indices"] == [0, 4]
    assert found["verdict"] == "loses on bandwidth, 25 against 50; ours is GPU0 GPU4"


def test_its_answer_follows_the_order_of_the_list(cli: Cli) -> None:
    ids = [gpu.id for gpu in machine("dgx-1v").gpus]
    answers = [answer(cli, "dgx-1v", order, 1)["answer"] for order in ("5,2", "2,5")]
    assert answers == [[ids[5]], [ids[2]]]


def test_a_device_that_does_not_exist_is_said_to_be_a_crash(cli: Cli) -> None:
    found = answer(cli, "dgx-a100", "0,2,4,5,6", 3)
    assert (found["crash"], found["answer"].count(None), found["score"]) == (True, 1, None)
    verdict = "it would crash here: it hands out 1 of 3 devices that do not exist"
    assert found["verdict"] == verdict
    request = ("--machine", "dgx-a100", "--available", "0,2,4,5,6", "--size", "3")
    short = cli("allocate", *request, "--policy", "nvidia", "-o", "short").out
    assert short == f"crash\n  {verdict}\n"


def test_the_page_shows_both_and_the_order_it_was_asked_in(cli: Cli) -> None:
    request = ("--machine", "dgx-1v", "--available", "4,0,2,5", "--size", "2")
    out = cli("allocate", *request, "--policy", "nvidia").out
    assert out == (
        "GPU4 GPU5   NVIDIA's best-effort, imitated to compare with\n"
        "\n"
        "  of GPU4 GPU0 GPU2 GPU5, in this order: its answer depends on it\n"
        "  loses on bandwidth, 25 against 50; ours is GPU0 GPU4\n"
        "          GPUs       GB/s  NUMA nodes  worth left\n"
        "  NVIDIA  GPU4 GPU5  25    1           25\n"
        "  ours    GPU0 GPU4  50    2           5.6\n"
    )


def test_the_same_set_is_said_to_be_the_same(cli: Cli) -> None:
    assert answer(cli, "dgx-1v", "0,3,4", 2)["verdict"] == "the same set as ours"


def test_a_request_that_would_take_it_seconds_is_refused(cli: Cli) -> None:
    done = cli("allocate", "--machine", "dgx-2", "--size", "4", "--policy", "nvidia")
    assert (done.code, "offer at most 12 GPUs" in done.err) == (2, True)


@pytest.mark.parametrize("form", ["table", "short", "json", "yaml"])
def test_every_format_works(cli: Cli, form: str) -> None:
    request = ("--machine", "dgx-h100", "--size", "4", "--policy", "nvidia", "--explain")
    assert cli("allocate", *request, "-o", form).code == 0
