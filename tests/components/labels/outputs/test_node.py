"""The labels on a Node, against a server that applies as the real one does."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodetopo.components.labels.outputs.node import NodeLabelPublisher
from nodetopo.errors import ApiUnavailable
from tests.components.labels.outputs.desired_labels import desired
from tests.kubeapi.fake_api_server import FakeApi, kubeconfig, serving

LABELS = {"nvidia.com/gpu.count": "8", "gpu.topology/interconnect": "nvswitch"}


@contextmanager
def publisher(api: FakeApi, directory: Path) -> Iterator[NodeLabelPublisher]:
    with serving(api, directory) as config:
        yield NodeLabelPublisher(config, "gpu-1")


def test_a_first_publish_writes_all_labels_beside_those_of_others(tmp_path: Path) -> None:
    api = FakeApi()
    api.set_by("kubelet", {"kubernetes.io/os": "linux"})
    with publisher(api, tmp_path) as ours:
        assert ours.publish(desired(LABELS))
    assert api.labels == {"kubernetes.io/os": "linux", **LABELS}


def test_a_second_publish_makes_no_write(tmp_path: Path) -> None:
    api = FakeApi()
    with publisher(api, tmp_path) as ours:
        ours.publish(desired(LABELS))
        assert not ours.publish(desired(LABELS))
    assert api.writes == 1


def test_a_restarted_publisher_makes_no_write(tmp_path: Path) -> None:
    api = FakeApi()
    with publisher(api, tmp_path) as ours:
        ours.publish(desired(LABELS))
    with publisher(api, tmp_path) as restarted:
        assert not restarted.publish(desired(LABELS))


def test_reads_after_a_write_ask_for_nothing_older_than_it(tmp_path: Path) -> None:
    api = FakeApi(version=41)
    with publisher(api, tmp_path) as ours:
        ours.publish(desired(LABELS))
        ours.publish(desired(LABELS))
        ours.publish(desired(LABELS))
    assert [query["resourceVersion"] for query in api.reads] == ["0", "42", "42"]


def test_after_a_failed_read_any_version_will_do(tmp_path: Path) -> None:
    # A restored etcd may never reach the version that was seen: the server answers 504.
    api = FakeApi(version=41)
    with publisher(api, tmp_path) as ours:
        ours.publish(desired(LABELS))
        api.fail_with = (504, {})
        with pytest.raises(ApiUnavailable):
            ours.publish(desired(LABELS))
        api.fail_with = None
        ours.publish(desired(LABELS))
    assert [query["resourceVersion"] for query in api.reads] == ["0", "42", "0"]


def test_a_changed_value_is_written(tmp_path: Path) -> None:
    api = FakeApi()
    with publisher(api, tmp_path) as ours:
        ours.publish(desired(LABELS))
        assert ours.publish(desired(LABELS | {"nvidia.com/gpu.count": "7"}))
    assert api.labels == LABELS | {"nvidia.com/gpu.count": "7"}


def test_a_label_that_somebody_removed_is_put_back(tmp_path: Path) -> None:
    api = FakeApi()
    with publisher(api, tmp_path) as ours:
        ours.publish(desired(LABELS))
        del api.labels["nvidia.com/gpu.count"], api.owners["nvidia.com/gpu.count"]
        ours.publish(desired(LABELS))
    assert api.labels == LABELS


def test_a_label_missing_from_an_incomplete_scan_keeps_its_value(tmp_path: Path) -> None:
    api = FakeApi()
    with publisher(api, tmp_path) as ours:
        ours.publish(desired(LABELS))
        assert not ours.publish(desired({"nvidia.com/gpu.count": "8"}))
    assert api.labels == LABELS


def test_a_change_in_an_incomplete_scan_removes_nothing(tmp_path: Path) -> None:
    api = FakeApi()
    with publisher(api, tmp_path) as ours:
        ours.publish(desired(LABELS))
        ours.publish(desired({"nvidia.com/gpu.count": "7"}))
    assert api.labels == LABELS | {"nvidia.com/gpu.count": "7"}


def test_a_label_missing_from_a_complete_scan_is_removed(tmp_path: Path) -> None:
    api = FakeApi()
    with publisher(api, tmp_path) as ours:
        ours.publish(desired(LABELS))
        assert ours.publish(desired({"nvidia.com/gpu.count": "8"}), complete=True)
    assert api.labels == {"nvidia.com/gpu.count": "8"}


def test_a_complete_scan_leaves_the_labels_of_others_alone(tmp_path: Path) -> None:
    api = FakeApi()
    api.set_by("gpu-operator", {"nvidia.com/gpu.present": "true"})
    with publisher(api, tmp_path) as ours:
        ours.publish(desired(LABELS), complete=True)
        ours.publish(desired({}), complete=True)
    assert api.labels == {"nvidia.com/gpu.present": "true"}


def test_labels_of_others_do_not_make_a_complete_scan_write(tmp_path: Path) -> None:
    api = FakeApi()
    api.set_by("gpu-operator", {"nvidia.com/gpu.present": "true"})
    with publisher(api, tmp_path) as ours:
        ours.publish(desired(LABELS), complete=True)
        assert not ours.publish(desired(LABELS), complete=True)


def test_a_label_of_another_program_is_taken_over(tmp_path: Path) -> None:
    api = FakeApi()
    api.set_by("nfd-master", {"nvidia.com/gpu.count": "4"})
    with publisher(api, tmp_path) as ours:
        ours.publish(desired(LABELS))
    assert (api.labels, api.owners["nvidia.com/gpu.count"]) == (LABELS, {"nodetopo"})


def test_conflicts_are_forced_only_after_the_server_names_them(tmp_path: Path) -> None:
    api = FakeApi()
    with publisher(api, tmp_path) as ours:
        ours.publish(desired(LABELS))
    assert api.patches == [{"fieldManager": "nodetopo"}]


def test_one_refused_label_does_not_keep_the_others_away(tmp_path: Path) -> None:
    api = FakeApi()
    with publisher(api, tmp_path) as ours:
        assert ours.publish(desired(LABELS | {"nvidia.com/gpu.product": "not valid"}))
    assert api.labels == LABELS


def test_the_search_for_a_refused_label_writes_nothing(tmp_path: Path) -> None:
    api = FakeApi()
    with publisher(api, tmp_path) as ours:
        ours.publish(desired(LABELS | {"nvidia.com/gpu.product": "not valid"}))
    assert api.writes == 2  # the one refused, and the one without the offender


def test_a_refused_label_is_named(tmp_path: Path) -> None:
    with publisher(FakeApi(), tmp_path) as ours:
        ours.publish(desired(LABELS | {"nvidia.com/gpu.product": "not valid"}))
    assert ours.refused == {("nvidia.com/gpu.product", "not valid")}


def test_a_refused_label_is_not_sent_again(tmp_path: Path) -> None:
    api = FakeApi()
    with publisher(api, tmp_path) as ours:
        ours.publish(desired(LABELS | {"nvidia.com/gpu.product": "not valid"}))
        api.patches.clear()
        assert not ours.publish(desired(LABELS | {"nvidia.com/gpu.product": "not valid"}))
    assert api.patches == []


def test_a_label_refused_once_is_written_with_a_better_value(tmp_path: Path) -> None:
    api = FakeApi()
    with publisher(api, tmp_path) as ours:
        ours.publish(desired({"nvidia.com/gpu.product": "not valid"}))
        ours.publish(desired({"nvidia.com/gpu.product": "valid"}))
    assert api.labels == {"nvidia.com/gpu.product": "valid"}


def test_a_recreated_node_gets_all_labels_at_the_next_attempt(tmp_path: Path) -> None:
    api = FakeApi()
    with publisher(api, tmp_path) as ours:
        ours.publish(desired(LABELS))
        api.uid, api.labels, api.owners = "uid-2", {}, {}
        assert ours.publish(desired(LABELS))
    assert api.labels == LABELS


class _RecreatedBetween(FakeApi):
    """Its Node is replaced after every read."""

    def read(self) -> dict[str, object]:
        before = super().read()
        self.uid += "'"
        return before


def test_a_node_replaced_under_a_patch_is_an_error_and_blames_no_label(tmp_path: Path) -> None:
    with publisher(_RecreatedBetween(), tmp_path) as ours:
        with pytest.raises(ApiUnavailable, match="created anew"):
            ours.publish(desired(LABELS))
        assert ours.refused == frozenset()


def test_a_missing_node_is_not_created(tmp_path: Path) -> None:
    api = FakeApi(node="other")
    with publisher(api, tmp_path) as ours, pytest.raises(ApiUnavailable, match="--node-name"):
        ours.publish(desired(LABELS))
    assert api.patches == []


def test_a_missing_permission_is_named(tmp_path: Path) -> None:
    api = FakeApi(fail_with=(403, {}))
    with publisher(api, tmp_path) as ours, pytest.raises(ApiUnavailable, match="grant `get`"):
        ours.publish(desired(LABELS))


def test_a_throttled_write_carries_the_pause(tmp_path: Path) -> None:
    api = FakeApi(fail_with=(429, {"Retry-After": "7"}))
    with publisher(api, tmp_path) as ours, pytest.raises(ApiUnavailable) as caught:
        ours.publish(desired(LABELS))
    assert caught.value.retry_after_s == 7.0


def test_a_failing_server_is_asked_only_once(tmp_path: Path) -> None:
    api = FakeApi(fail_with=(503, {"Retry-After": "1"}))
    with publisher(api, tmp_path) as ours, pytest.raises(ApiUnavailable):
        ours.publish(desired(LABELS))
    assert len(api.reads) == 1


def test_publishing_goes_on_after_an_outage(tmp_path: Path) -> None:
    api = FakeApi(fail_with=(500, {}))
    with publisher(api, tmp_path) as ours:
        with pytest.raises(ApiUnavailable):
            ours.publish(desired(LABELS))
        api.fail_with = None
        assert ours.publish(desired(LABELS))


def test_a_server_that_does_not_listen_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        port = taken.getsockname()[1]
        config = tmp_path / "kubeconfig"
        config.write_text(kubeconfig(f"http://127.0.0.1:{port}"))
        with pytest.raises(ApiUnavailable, match=f"127.0.0.1:{port}/api/v1/nodes/gpu-1"):
            NodeLabelPublisher(config, "gpu-1").publish(desired(LABELS))


@pytest.mark.parametrize("text", ["", "hello", "[1,", "{}", "clusters: 5", "\0"])
def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(text)
    with pytest.raises(ApiUnavailable, match=f"cannot use {config}"):
        NodeLabelPublisher(config, "gpu-1").publish(desired(LABELS))


def test_without_kubeconfig_and_cluster_the_flag_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ApiUnavailable, match="--kubeconfig"):
        NodeLabelPublisher(None, "gpu-1").publish(desired(LABELS))


def test_in_a_pod_without_a_token_the_service_account_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    with pytest.raises(ApiUnavailable, match="service account"):
        NodeLabelPublisher(None, "gpu-1").publish(desired(LABELS))
