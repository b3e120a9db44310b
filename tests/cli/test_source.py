"""The flags that every command of a node takes, and the kubeconfig that they find by themselves."""

import argparse
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.cli.flags.source import NODE_SETTINGS
from nodetopo.cli.main import parser
from nodetopo.cli.source import settings
from nodetopo.cli.words import levels
from nodetopo.kernel.settings.declare import key
from nodetopo.kubeapi.access import access
from nodetopo.machines.bundled import machine
from nodetopo.model.codec import encode
from nodetopo.model.probe_issue import ProbeIssue
from tests.cli.conftest import Cli
from tests.cli.outcome import READERS, slug
from tests.kubeapi.fake_api_server import kubeconfig

OF_A_NODE = (
    ("topo", "matrix"),
    ("topo", "tree"),
    ("topo", "path"),
    ("labels",),
    ("publish",),
    ("cleanup",),
    ("health",),
    ("audit",),
    ("admit",),
    ("doctor",),
    ("allocate",),
    ("capture",),
    ("nccl", "xml"),
)
"""The commands that read, or write, what belongs to one node; `doctor --live` among them."""

FLAGS = {f"--{key(name)}" for name in NODE_SETTINGS}

PLACES = ("flag", "NODETOPO_KUBECONFIG", "KUBECONFIG", "home")


def flags(of: argparse.ArgumentParser) -> set[str]:
    return {flag for action in of._actions for flag in action.option_strings}


@pytest.mark.parametrize("command", OF_A_NODE, ids=slug)
def test_every_command_of_a_node_takes_the_same_flags(command: tuple[str, ...]) -> None:
    (found,) = (
        one.parser for one in levels(parser()) if one.path == "".join(f" {w}" for w in command)
    )
    assert FLAGS - flags(found) == set()


def test_no_command_takes_some_of_them_only() -> None:
    # The daemon has every setting; the cluster's commands reach the API server and no node.
    alone = {" run", " export", " explain-claim"}
    partial = {
        one.path: FLAGS & flags(one.parser)
        for one in levels(parser())
        if one.path not in alone and FLAGS & flags(one.parser) not in (set(), FLAGS)
    }
    assert partial == {}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home directory without anything in it, outside of any cluster."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("command", ["publish", "cleanup", "audit", "capture"])
@pytest.mark.parametrize("first", range(len(PLACES)), ids=PLACES)
def test_the_kubeconfig_is_the_one_that_people_expect(
    command: str, first: int, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".kube").mkdir()
    arguments = ["-o", "json"]
    for number, place in enumerate(PLACES):
        file = home / (".kube/config" if place == "home" else place)
        file.write_text(kubeconfig(f"http://127.0.0.1:{number + 1}"))
        if number < first or place == "home":
            continue
        if place == "flag":
            arguments += ["--kubeconfig", str(file)]
        else:
            monkeypatch.setenv(place, str(file))
    found = settings(parser(command).parse_args([command, *arguments])).kubeconfig
    assert access(found).host == f"http://127.0.0.1:{first + 1}"


def test_a_pod_s_own_account_comes_before_the_home_directory(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".kube").mkdir()
    (home / ".kube/config").write_text(kubeconfig("http://127.0.0.1:1"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert settings(parser("publish").parse_args(["publish"])).kubeconfig is None


@pytest.mark.usefixtures("home")
def test_without_any_there_is_none() -> None:
    assert settings(parser("publish").parse_args(["publish"])).kubeconfig is None


@pytest.mark.parametrize("form", ["table", "json"])
@pytest.mark.parametrize("command", READERS, ids=map(slug, READERS))
def test_hardware_that_was_not_read_is_said_once(
    cli: Cli, tmp_path: Path, command: tuple[str, ...], form: str
) -> None:
    reasons = {"rdma": "cannot list HCAs", "numa": "cannot list NUMA nodes"}
    issues = tuple(
        ProbeIssue(probe=probe, subject="/sys", reason=reason) for probe, reason in reasons.items()
    )
    partial = replace(machine("dgx-h100"), hcas=None, numa_nodes=None, issues=issues)
    file = tmp_path / "node.json"
    file.write_text(encode(partial))
    outcome = cli(*command, "-o", form, "--snapshot", str(file))
    whole = outcome.out + outcome.err
    assert [whole.count(reason) for reason in reasons.values()] == [1, 1]
