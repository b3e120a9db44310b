"""`publish` and `cleanup`, from the command line to a node."""

import json
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from nodetopo.cli import publish
from nodetopo.cli.main import execute, parser
from nodetopo.components.labels.catalogue import labels
from nodetopo.errors import ApiUnavailable, InputError
from nodetopo.kubeapi import apply
from nodetopo.kubeapi.client import Api
from nodetopo.machines.bundled import machine
from tests.kubeapi.fake_api_server import FakeApi, serving

COUNT = "nvidia.com/gpu.count"
DGX = labels(machine("dgx-h100"))


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture(autouse=True)
def _log() -> Iterator[None]:
    """Have no later test log to the standard error of one of these."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def node(api: FakeApi, tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """Yield the flags that lead to the fake node."""
    with serving(api, tmp_path) as kubeconfig:
        yield "--kubeconfig", str(kubeconfig), "--node-name", "gpu-1"


def run(*argv: str) -> int:
    args = parser(argv[0]).parse_args(argv, Namespace(warnings=[], strict=False, incomplete=False))
    return execute(args)


def test_a_dry_run_of_publish_shows_each_change_and_makes_none(
    api: FakeApi, node: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    api.set_by("nodetopo", {COUNT: "7", "a.io/old": "x"})
    assert run("publish", "--dry-run", "--machine", "dgx-h100", *node) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["node/gpu-1", "~", f"{COUNT}=7", "→", "8"] in lines
    assert ["node/gpu-1", "+", "nvidia.com/gpu.replicas=1"] in lines
    assert ["node/gpu-1", "?", "a.io/old=x"] in lines
    assert lines[-1] == ["node/gpu-1:", "would", "change", str(len(DGX)), "labels"]
    assert api.patches == []


@pytest.mark.parametrize("command", [("publish", "--machine", "dgx-h100"), ("cleanup",)])
def test_the_node_is_reached_by_the_kubeconfig_of_the_shell(
    api: FakeApi,
    node: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
) -> None:
    api.set_by("nodetopo", {COUNT: "7"})
    monkeypatch.setenv("KUBECONFIG", node[1])
    assert run(*command, "--dry-run", "--label-outputs", "node", *node[2:]) == 0
    assert COUNT in capsys.readouterr().out


def test_publish_as_json_has_the_same_changes(
    node: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    run("publish", "--dry-run", "--machine", "dgx-h100", "-o", "json", *node)
    (found,) = json.loads(capsys.readouterr().out)["places"]
    assert (found["output"], found["added"]) == ("node", DGX)


def test_labels_of_another_machine_are_not_published(api: FakeApi, node: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="only the live node"):
        run("publish", "--machine", "dgx-h100", *node)
    assert api.patches == []


def test_publish_writes_the_labels_of_this_node_once(
    api: FakeApi,
    node: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(publish, "load", lambda _args: machine("dgx-h100"))
    assert run("publish", *node) == 0
    assert (api.labels, api.writes) == (DGX, 1)
    capsys.readouterr()
    assert run("publish", "-o", "short", *node) == 0
    assert (api.writes, capsys.readouterr().out) == (1, "node/gpu-1: changed nothing\n")


def test_an_output_that_fails_keeps_no_other_waiting_and_is_the_error(
    api: FakeApi,
    node: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(publish, "load", lambda _args: machine("dgx-h100"))
    flags = ("--label-outputs", "node-feature,nfd-file,node", "--nfd-file", f"{tmp_path}/no/file")
    with pytest.raises(ApiUnavailable, match="nodefeature"):
        run("publish", "-o", "short", *flags, *node)
    assert api.labels == DGX
    captured = capsys.readouterr()
    assert captured.out == f"node/gpu-1: changed {len(DGX)} labels\n"
    assert captured.err.startswith(f"error: cannot write {tmp_path}/no/file")


def test_an_unknown_output_is_refused_with_the_choices(node: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="did you mean 'node-feature'"):
        run("cleanup", "--label-outputs", "node-features", *node)


def test_cleanup_removes_what_its_dry_run_shows(
    api: FakeApi, node: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    api.set_by("nodetopo", {COUNT: "8"})
    file = tmp_path / "features"
    file.write_text("a.io/x=1\n")
    flags = ("--nfd-file", str(file), "--namespace", "ns", *node)
    assert run("cleanup", "--dry-run", *flags) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{'PLACE':{len(str(file))}}  {'LABEL':{len(COUNT)}}  VALUE",
        f"{'node/gpu-1':{len(str(file))}}  {COUNT}  8",
        f"{file}  {'a.io/x':{len(COUNT)}}  1",
        "node/gpu-1: would remove 1 label",
        f"{file}: would remove 1 label",
        "nodefeature/nodetopo-gpu-1 in ns: nothing to remove",
    ]
    assert (api.patches, file.exists()) == ([], True)
    assert run("cleanup", *flags) == 0
    assert (api.labels, file.exists()) == ({}, False)


def test_cleanup_as_json_names_each_place(
    api: FakeApi, node: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    api.set_by("nodetopo", {COUNT: "8"})
    run("cleanup", "--label-outputs", "node", "-o", "json", *node)
    assert json.loads(capsys.readouterr().out) == {
        "dry_run": False,
        "places": [
            {
                "output": "node",
                "place": "node/gpu-1",
                "labels": {COUNT: "8"},
                "is_there": True,
                "problem": None,
            }
        ],
    }


def test_a_cleanup_that_fails_ends_with_3_and_says_where(
    api: FakeApi, node: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    api.fail_with = (503, {})
    assert run("cleanup", "--label-outputs", "node", *node) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: cannot clean node/gpu-1: GET ")


def test_a_cleanup_without_a_cluster_says_so_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "features"
    no_cluster = ("--kubeconfig", str(tmp_path / "gone"), "--node-name", "gpu-1")
    assert run("cleanup", "--nfd-file", str(file), *no_cluster) == 3
    captured = capsys.readouterr()
    assert captured.out == f"{file}: nothing to remove\n"
    assert captured.err.count("error: ") == 1
    assert captured.err.startswith("error: cannot clean node/gpu-1, nodefeature/nodetopo-gpu-1 in ")


def test_cleanup_of_all_nodes_takes_the_labels_of_those_that_have_some(
    api: FakeApi, node: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    api.set_by("nodetopo", {COUNT: "8"})
    assert run("cleanup", "--all-nodes", "-o", "short", *node[:2]) == 0
    assert (api.labels, capsys.readouterr().out) == ({}, "node/gpu-1: removed 1 label\n")


def test_cleanup_of_all_nodes_takes_one_connection(
    api: FakeApi, node: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    api.set_by("nodetopo", {COUNT: "8"})
    made: list[Path | None] = []

    class Counted(Api):
        def __init__(self, kubeconfig: Path | None) -> None:
            super().__init__(kubeconfig)
            made.append(kubeconfig)

    monkeypatch.setattr(apply, "Api", Counted)
    assert run("cleanup", "--all-nodes", *node[:2]) == 0
    assert (api.labels, made) == ({}, [Path(node[1])])


def test_all_nodes_is_for_labels_of_nodes_alone(node: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="--all-nodes is for the output node"):
        run("cleanup", "--all-nodes", "--label-outputs", "nfd-file", *node)


def test_the_tiers_of_a_node_follow_from_the_labels_that_it_has(
    api: FakeApi, node: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    api.set_by("topograph", {"fabric.topograph.run/tier-0": "leaf-7"})
    flags = ("--dry-run", "--machine", "dgx-h100", "-o", "json", *node)
    run("publish", "--topology-levels", "auto", *flags)
    (found,) = json.loads(capsys.readouterr().out)["places"]
    assert found["added"]["gpu.topology/tier-0"] == "leaf-7"


@pytest.mark.parametrize(("word", "is_written"), [("auto", False), ("always", True)])
def test_the_clique_of_another_writer_is_taken_over_on_request_alone(
    api: FakeApi,
    node: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    word: str,
    *,
    is_written: bool,
) -> None:
    api.set_by("dra-driver", {"nvidia.com/gpu.clique": "theirs"})
    flags = ("--dry-run", "--machine", "gb200-nvl72", "-o", "json", *node)
    run("publish", "--publish-clique", word, *flags)
    (found,) = json.loads(capsys.readouterr().out)["places"]
    assert ("nvidia.com/gpu.clique" in found["changed"]) == is_written


def test_the_log_of_a_refused_label_stays_out_of_the_answer(
    api: FakeApi,
    node: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    api.set_by("nfd-master", {COUNT: "4"})
    monkeypatch.setattr(publish, "load", lambda _args: machine("dgx-h100"))
    run("publish", "-o", "json", *node)
    captured = capsys.readouterr()
    json.loads(captured.out)
    assert '"event": "labels taken over"' in captured.err
