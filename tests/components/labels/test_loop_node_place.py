"""Where a node stands, by the settings."""

import json
from pathlib import Path
from typing import Any

import pytest

from nodetopo.components.labels.loop import NodeTiers
from nodetopo.errors import InputError
from nodetopo.kernel.settings.declare import Settings

EKS = {
    "topology.k8s.aws/network-node-layer-1": "nn-far",
    "topology.k8s.aws/network-node-layer-2": "nn-mid",
    "topology.k8s.aws/network-node-layer-3": "nn-near",
}
TOPOGRAPH = {"fabric.topograph.run/tier-0": "leaf-7"}


def place(path: Path | None = None, levels: str = "off") -> NodeTiers:
    return NodeTiers(Settings(node_name="gpu-1", topology_levels=levels, topology_levels_file=path))


def written(directory: Path, document: Any) -> Path:
    path = directory / "levels.yaml"
    path.write_text(json.dumps(document))
    return path


def test_without_settings_there_are_no_tiers_and_nothing_is_needed() -> None:
    found = place()
    assert (found.tiers(), found.needs_labels) == ({}, False)


def test_before_the_labels_are_known_nothing_is_said() -> None:
    found = place(levels="auto")
    assert (found.tiers(), found.needs_labels) == (None, True)
    found.note({})
    assert found.tiers() == {}


def test_tiers_follow_the_labels_as_they_change() -> None:
    found = place(levels="auto")
    found.note(EKS)
    assert found.tiers() == {"tier-0": "nn-near", "tier-1": "nn-mid", "tier-2": "nn-far"}
    found.note(EKS | TOPOGRAPH)
    assert found.tiers() == {"tier-0": "leaf-7"}


def test_one_platform_alone_counts_where_it_is_asked_for() -> None:
    found = place(levels="aws")
    found.note(EKS | TOPOGRAPH)
    assert found.tiers() == {"tier-0": "nn-near", "tier-1": "nn-mid", "tier-2": "nn-far"}


def test_a_file_that_names_the_node_needs_no_labels(tmp_path: Path) -> None:
    found = place(written(tmp_path, {"nodes": {"gpu-1": ["r2", "b3"]}}))
    assert (found.needs_labels, found.tiers()) == (False, {"tier-0": "b3__r2", "tier-1": "b3"})


def test_a_file_that_names_the_node_leaves_broader_tiers_to_the_platform(tmp_path: Path) -> None:
    found = place(written(tmp_path, {"nodes": {"gpu-1": ["r2"]}}), levels="aws")
    assert (found.needs_labels, found.tiers()) == (True, None)
    found.note(EKS)
    assert found.tiers() == {"tier-0": "r2", "tier-1": "nn-mid", "tier-2": "nn-far"}


def test_a_node_that_a_file_names_without_a_place_needs_its_labels(tmp_path: Path) -> None:
    found = place(written(tmp_path, {"nodes": {"gpu-1": []}, "labels": ["example.com/rack"]}))
    assert (found.needs_labels, found.tiers()) == (True, None)


def test_tiers_are_not_made_of_themselves(tmp_path: Path) -> None:
    path = written(tmp_path, {"labels": ["gpu.topology/tier-0", "example.com/block"]})
    with pytest.raises(InputError, match="tier-0 is made from these labels itself"):
        place(path)


def test_a_file_that_names_labels_needs_them(tmp_path: Path) -> None:
    found = place(written(tmp_path, {"labels": ["example.com/rack"]}))
    assert (found.needs_labels, found.tiers()) == (True, None)
    found.note({"example.com/rack": "r2"})
    assert found.tiers() == {"tier-0": "r2"}


def test_what_a_file_says_wins_over_the_platform(tmp_path: Path) -> None:
    path = written(tmp_path, {"labels": ["example.com/rack"]})
    found = place(path, levels="auto")
    found.note({"example.com/rack": "r2"} | EKS)
    assert found.tiers() == {"tier-0": "r2", "tier-1": "nn-mid", "tier-2": "nn-far"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a\n", "levels: not a mapping"),
        ("nodes: [", "not YAML"),
        ("node: {}\n", "did you mean 'nodes'"),
        ("nodes: {gpu-1: [no]}\n", r"levels.nodes.gpu-1\[0\]: not a name"),
        ('labels: !!int ""', "a value that its tag does not fit"),
        ("labels: !!bool x", "a value that its tag does not fit"),
        ("labels: !!timestamp x", "a value that its tag does not fit"),
        ("a: " + "x" * (1 << 18), "larger than 256 KiB"),
    ],
)
def test_a_file_that_does_not_do_is_named_with_the_place_in_it(
    tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "levels.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=words) as caught:
        place(path)
    assert caught.value.cause.count(str(path)) == 1


def test_an_error_about_lists_of_lists_of_lists_is_short(tmp_path: Path) -> None:
    path = tmp_path / "levels.yaml"
    lists = [f"&x{i} [{', '.join([f'*x{i - 1}'] * 10)}]" for i in range(1, 12)]  # 10^12 of them
    path.write_text(f"qualified: [&x0 [a], {', '.join(lists)}]\n")
    with pytest.raises(InputError, match=r"levels\.yaml: not YAML: more than 100000") as caught:
        place(path)
    assert len(caught.value.cause) < 1000


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a file"):
        place(tmp_path / "levels.yaml")
