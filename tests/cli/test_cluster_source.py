"""Where commands about the cluster have their Nodes from."""

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from nodetopo.cli import cluster_source
from nodetopo.cli.cluster_api import ClusterApi
from nodetopo.cli.cluster_source import api, load_nodes
from nodetopo.cli.flags.cluster import add_cluster_source
from nodetopo.cli.parser import Parser
from nodetopo.errors import ApiUnavailable, InputError
from tests.kubeapi.fake_api_server import kubeconfig, serving
from tests.kubeapi.fake_lists import FakeLists

NODES = "/api/v1/nodes"


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def listed(*items: object) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


@pytest.fixture(autouse=True)
def _no_cluster_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def parsed(*arguments: str) -> Namespace:
    parser = Parser()
    add_cluster_source(parser)
    return parser.parse_args(arguments)


def names(text: str, tmp_path: Path, *arguments: str) -> list[str]:
    """Return the names of the nodes in a file with *text*."""
    file = tmp_path / "nodes"
    file.write_text(text, encoding="utf-8")
    return [one.name for one in load_nodes(parsed("--nodes", str(file), *arguments))]


YAML = """\
apiVersion: v1
items:
- kind: Node
  metadata: {name: n2, labels: {a: "1"}}
- kind: Node
  metadata: {name: n1}
kind: List
"""


@pytest.mark.parametrize(
    "text",
    [
        listed(node("n2"), node("n1")),
        f"\n {listed(node('n2'), node('n1'))}",
        YAML,
        f"---\n{json.dumps(node('n2'))}\n---\n{json.dumps(node('n1'))}\n...\n---\n",
    ],
    ids=["json", "json with space", "yaml", "documents"],
)
def test_all_that_kubectl_prints_is_read_and_sorted(text: str, tmp_path: Path) -> None:
    assert names(text, tmp_path) == ["n1", "n2"]


def test_a_single_node_is_read(tmp_path: Path) -> None:
    assert names(json.dumps(node("n1")), tmp_path) == ["n1"]


def test_a_selector_chooses_in_a_file_too(tmp_path: Path) -> None:
    text = listed(node("n1", pool="a"), node("n2", pool="b"))
    assert names(text, tmp_path, "--selector", "pool!=a") == ["n2"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("{", "not JSON"),
        ("a: b: c", "not YAML"),
        ("[1, 2]", "expected an object, found a list"),
        ('{"items": {}}', "items: expected a list, found an object"),
        (listed(node("n1"), 5), r"items\[1\]: expected a Node, found 5"),
        (listed(node("n1"), {"kind": "Pod"}), r"items\[1\]: .* the kind 'Pod'"),
        (listed({"kind": "Node"}), r"items\[0\]\.metadata: expected an object, found NoneType"),
        (listed({"metadata": {}}), r"items\[0\]\.metadata\.name: expected a name"),
        (YAML.replace('"1"', "1"), r"items\[0\]\.metadata\.labels\.a: .* put label values in"),
        (listed(node("n1"), node("n1")), r"items\[1\]: a second Node 'n1', .* items\[0\]"),
        ("a: &x 1\nb: *x\n", r"the alias \*x"),
        ("[" * 40 + "]" * 40, "nested deeper than 32 levels"),
        ('{"a":' * 100_000, "nested too deeply|not JSON"),
        ("a: !!python/object:os.system {}", "not YAML"),
        ("a: 2026-13-45", "not YAML"),
        ('a: !!int ""', "not YAML"),
        ("a: !!bool x", "not YAML"),
        (f"a: {'9' * 5000}", "not YAML"),
        (listed(), "no Node in"),
    ],
)
def test_a_broken_file_is_refused_with_the_place(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        names(text, tmp_path)
    assert caught.value.cure


def test_a_file_with_an_alias_bomb_is_refused_before_it_is_unfolded(tmp_path: Path) -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"{new}: &{new} [*{old}, *{old}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    with pytest.raises(InputError, match="alias"):
        names(bomb, tmp_path)


def test_a_large_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = listed(node("n1"))
    monkeypatch.setattr(cluster_source, "MAX_JSON_BYTES", len(text) - 1)
    with pytest.raises(InputError, match="is larger than"):
        names(text, tmp_path)


def test_a_large_yaml_file_is_refused_sooner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_source, "MAX_YAML_BYTES", len(YAML) - 1)
    with pytest.raises(InputError, match=r"too much as YAML — save it with .* json"):
        names(YAML, tmp_path)


def test_nodes_that_no_selector_leaves_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no Node in .* — check --selector"):
        names(listed(node("n1")), tmp_path, "--selector", "pool=gpu")


def test_a_file_and_a_cluster_exclude_each_other() -> None:
    with pytest.raises(InputError, match="not allowed with"):
        parsed("--nodes", "a", "--kubeconfig", "b")


def test_with_a_file_no_api_server_is_asked() -> None:
    assert api(parsed("--nodes", "a", "--selector", "b")) is None


def test_the_api_server_is_asked_for_the_selected_nodes(tmp_path: Path) -> None:
    fake = FakeLists(lists={NODES: [node("n2"), node("n1")]})
    with serving(fake, tmp_path) as config:
        found = load_nodes(parsed("--kubeconfig", str(config), "--selector", "a = b"))
    assert [one.name for one in found] == ["n1", "n2"]
    assert fake.asked == [(NODES, {"limit": "500", "labelSelector": "a=b"})]


PLACES = ("flag", "NODETOPO_KUBECONFIG", "KUBECONFIG", "home")


@pytest.mark.parametrize("first", range(len(PLACES)), ids=PLACES)
def test_the_kubeconfig_is_the_one_that_people_expect(
    first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".kube").mkdir()
    arguments: list[str] = []
    for number, place in enumerate(PLACES):
        file = tmp_path / (".kube/config" if place == "home" else place)
        file.write_text(kubeconfig(f"http://127.0.0.1:{number + 1}"))
        if number < first or place == "home":
            continue
        if place == "flag":
            arguments += ["--kubeconfig", str(file)]
        else:
            monkeypatch.setenv(place, str(file))
    cluster = api(parsed(*arguments))
    assert isinstance(cluster, ClusterApi)
    assert cluster.connect().host == f"http://127.0.0.1:{first + 1}"


def test_without_any_kubeconfig_nothing_is_known() -> None:
    with pytest.raises(ApiUnavailable, match="no API server is known"):
        load_nodes(parsed())
