"""What an uninstall takes away, and what it leaves."""

from pathlib import Path

import pytest

from nodetopo.components.labels.outputs.chosen import label_outputs
from nodetopo.components.labels.outputs.output import OUTPUTS, LabelOutput, own_namespace
from nodetopo.errors import ApiUnavailable
from nodetopo.tools.cluster.cleanup import Cleaned, clean, nodes_with_labels
from tests.components.labels.outputs.desired_labels import desired
from tests.kubeapi.fake_api_server import DirectApi, FakeApi, serving
from tests.kubeapi.fake_node_features import FakeFeatures

LABELS = {"nvidia.com/gpu.count": "8"}
THEIRS = {"kubernetes.io/os": "linux"}


@pytest.fixture
def api() -> FakeApi:
    found = FakeApi(features=FakeFeatures())
    found.set_by("kubelet", THEIRS)
    return found


def outputs(kubeconfig: Path, directory: Path) -> tuple[LabelOutput, ...]:
    return label_outputs(
        OUTPUTS, kubeconfig=kubeconfig, node="gpu-1", nfd_file=directory / "nodetopo"
    )


def test_outputs_are_those_that_are_named_in_their_order() -> None:
    found = label_outputs(OUTPUTS[::-1], kubeconfig=None, node="gpu-1")
    assert [one.name for one in found] == ["node-feature", "nfd-file", "node"]


def test_everything_of_ours_is_removed_and_nothing_else(api: FakeApi, tmp_path: Path) -> None:
    tmp_path.joinpath("gfd").write_text("nvidia.com/theirs=1\n")
    with serving(api, tmp_path) as kubeconfig:
        ours = outputs(kubeconfig, tmp_path)
        for one in ours:
            one.publish(desired(LABELS))
        found = tuple(clean(ours, is_dry=False))
    assert [(one.labels, one.is_there, one.problem) for one in found] == [(LABELS, True, None)] * 3
    assert api.features is not None
    assert (api.labels, api.features.objects) == (THEIRS, {})
    assert sorted(one.name for one in tmp_path.iterdir()) == ["gfd", "kubeconfig"]


def test_a_dry_run_reports_the_same_and_removes_nothing(api: FakeApi, tmp_path: Path) -> None:
    with serving(api, tmp_path) as kubeconfig:
        ours = outputs(kubeconfig, tmp_path)
        for one in ours:
            one.publish(desired(LABELS))
        promised = tuple(clean(ours, is_dry=True))
        assert api.labels == THEIRS | LABELS
        assert tmp_path.joinpath("nodetopo").exists()
        assert tuple(clean(ours, is_dry=False)) == promised


def test_a_second_cleanup_finds_nothing_and_writes_nothing(api: FakeApi, tmp_path: Path) -> None:
    with serving(api, tmp_path) as kubeconfig:
        found = tuple(clean(outputs(kubeconfig, tmp_path), is_dry=False))
    assert [one.is_there for one in found] == [False] * 3
    assert api.patches == []


def test_a_place_that_fails_keeps_no_other_from_being_cleaned(api: FakeApi, tmp_path: Path) -> None:
    with serving(api, tmp_path) as kubeconfig:
        ours = outputs(kubeconfig, tmp_path)
        for one in ours:
            one.publish(desired(LABELS))
        api.fail_with = (403, {})
        first, second, third = clean(ours, is_dry=False)
    assert "grant `get` and `patch`" in str(first.problem)
    assert second == Cleaned(
        output="nfd-file", place=str(tmp_path / "nodetopo"), labels=LABELS, is_there=True
    )
    assert third.problem is not None


def test_nodes_with_labels_of_ours_are_found_page_by_page(api: FakeApi) -> None:
    api.set_by("nodetopo", LABELS)
    assert list(nodes_with_labels(lambda: DirectApi(api))) == ["gpu-1"]
    assert api.reads == [{"limit": "500"}, {"limit": "500", "continue": "1"}]


def test_nodes_without_labels_of_ours_are_left_out(api: FakeApi) -> None:
    assert list(nodes_with_labels(lambda: DirectApi(api))) == []


def test_a_cluster_that_may_not_be_listed_is_an_error(api: FakeApi) -> None:
    api.fail_with = (403, {})
    with pytest.raises(ApiUnavailable, match="grant `list` on nodes"):
        list(nodes_with_labels(lambda: DirectApi(api)))


def test_the_namespace_is_that_of_the_pod(tmp_path: Path) -> None:
    file = tmp_path / "namespace"
    assert own_namespace(file) is None
    file.write_text("gpu-agents")
    assert own_namespace(file) == "gpu-agents"
