"""``nodetopo explain``: words of all kinds, in every format."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from nodetopo.cli.main import parser
from nodetopo.cli.words import offered
from nodetopo.tools.explain.catalogue import entries
from nodetopo.tools.explain.entry import Kind
from tests.cli.conftest import Cli

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "schema" / "explain.json"

QUESTIONS = {
    "a pod got TopologyAffinityError": "TopologyAffinityError",
    "a pod got UnexpectedAdmissionError": "UnexpectedAdmissionError",
    "pods are Pending": "Insufficient nvidia.com/gpu",
    "GPUs on two sockets": "PodMisaligned",
    "why is a GPU Unhealthy": "GpuUnhealthy",
    "what is this XID": "XID-79",
    "labels are missing": "GpuLabelsNotPublished",
    "a MIG device is not offered": "mig-strategy",
    "the runtime knows no such device": "unknown device",
    "an RDMA resource is missing": "HcaUnhealthy",
    "the agent is not ready": "NodetopoNotReady",
    "memory": "NodetopoRestarting",
}
"""What an operator asks, and the word that stands before them."""


def test_a_check_has_its_facts(cli: Cli) -> None:
    done = cli("explain", "kub-003")
    assert done.code == 0
    assert done.out.startswith("KUB-003: Topology Manager policy\n\n")
    assert "severity" in done.out


def test_several_words_are_one(cli: Cli) -> None:
    assert cli("explain", "xid", "79").out == cli("explain", "XID-79").out


def test_all_meanings_are_printed(cli: Cli) -> None:
    out = cli("explain", "GpuUnhealthy").out
    assert "GpuUnhealthy (alert): " in out
    assert "\n\nGpuUnhealthy (Event): " in out


def test_a_flag_of_the_daemon_is_a_word(cli: Cli) -> None:
    assert cli("explain", "--mig-strategy", "-o", "short").code == 0
    assert cli("explain", "--mig-strategy=mixed").code == 2


def test_an_unknown_word_gets_close_suggestions_only(cli: Cli) -> None:
    done = cli("explain", "GpuUnhealty")
    assert (done.code, done.out) == (2, "")
    assert "did you mean 'GpuUnhealthy'" in done.err
    done = cli("explain", "quux")
    assert done.err == (
        "error: nothing is known of 'quux' — `nodetopo explain --all` lists the words\n"
    )


def test_alone_it_lists_the_kinds(cli: Cli) -> None:
    out = cli("explain", "-o", "short").out
    assert [line.rsplit(" ", 1)[0] for line in out.splitlines()] == [kind.value for kind in Kind]


def test_all_lists_every_word(cli: Cli) -> None:
    assert len(cli("explain", "--all").out.splitlines()) == len(entries()) + 1
    assert cli("explain", "--all", "KUB-003").code == 2


@pytest.mark.parametrize("words", [(), ("--all",), ("79",), ("GpuUnhealthy",)])
def test_json_is_as_promised(cli: Cli, words: tuple[str, ...]) -> None:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(json.loads(cli("explain", *words, "-o", "json").out))


def test_the_words_are_offered_for_completion() -> None:
    words = offered(parser("explain"), ["explain"])
    assert words is not None
    assert {"--all", "KUB-003", "XID-79", "GpuUnhealthy"} <= set(words)


def test_other_commands_whose_options_take_a_word_do_not_offer_them() -> None:
    assert "KUB-003" not in (offered(parser("labels"), ["labels"]) or ())


@pytest.mark.parametrize("word", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_a_question_is_answered_with_something_to_do(cli: Cli, word: str) -> None:
    done = cli("explain", word, "-o", "json")
    assert done.code == 0
    facts = [entry["facts"] for entry in json.loads(done.out)["entries"]]
    assert any("what to do" in one or "class" in one or "set by" in one for one in facts)
