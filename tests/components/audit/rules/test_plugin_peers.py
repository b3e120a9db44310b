"""PLG-005, PLG-006: other programs that do the same work."""

import pytest
from msgspec.structs import replace

from nodetopo.model.host import HostSettings
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import NODE, POD, STATE, TRAINER, healthy, result
from tests.components.audit.rules.kubelet.kubelet_node import missing, observed, skipped

OURS = ("nodetopo-gpu-7-0a1b2c3d.sock",)
COUNT = "nvidia.com/gpu.count"
NVIDIA = "nvcr.io/nvidia/k8s-device-plugin:v0.19.0"


def served(
    *programs: str, sockets: tuple[str, ...] | None = OURS, image: str | None = None
) -> Snapshot:
    """Return the node with our plugin, other programs, and a pod of *image*."""
    host = replace(healthy().host or HostSettings(), peer_programs=programs)
    state = replace(STATE, plugin_sockets=sockets)
    pod = replace(POD, phase="Running", containers=(replace(TRAINER, image=image),))
    return replace(healthy(), host=host, kubelet_state=state, pods=(pod,))


def labelled(*programs: str, **writers: tuple[str, ...]) -> Snapshot:
    """Return the node whose labels have *writers*, with dots and slashes for underscores."""
    names = {f"nvidia.com/gpu.{name}": managers for name, managers in writers.items()}
    return replace(served(*programs), node_status=replace(NODE, label_writers=names))


@pytest.mark.parametrize(
    ("program", "whose"),
    [
        ("nvidia-device-plugin", "NVIDIA's device plugin"),
        ("nvidia-gpu-device-plugin", "GKE's device plugin"),
        ("gpu-kubelet-plugin", "NVIDIA's DRA driver"),
        ("vGPU-device-plugin", "HAMi's device plugin"),
    ],
)
def test_another_plugin_beside_ours_is_found(program: str, whose: str) -> None:
    (finding,) = result("PLG-005", served(program)).findings
    assert (finding.subject, finding.observed) == (f"program {program}", whose)


def test_programs_that_give_out_no_gpus_are_no_rivals() -> None:
    assert observed("PLG-005", served("gpu-feature-discovery", "k8s-rdma-shared-dp")) == []


@pytest.mark.parametrize(
    ("image", "found"),
    [
        (NVIDIA, ["NVIDIA's device plugin"]),
        ("k8s-device-plugin@sha256:0123", ["NVIDIA's device plugin"]),
        ("host:5000/nvidia-gpu-device-plugin", ["GKE's device plugin"]),
        ("registry/my-k8s-device-plugin-test:1", []),
        (None, []),
    ],
)
def test_a_pod_of_another_plugin_is_found_by_its_image(image: str | None, found: list[str]) -> None:
    assert observed("PLG-005", served(image=image)) == found


@pytest.mark.parametrize(
    ("name", "plugins", "writers"),
    [
        ("nvidia-device-plugin-ctr", ["NVIDIA's device plugin"], []),
        ("gpu-feature-discovery-ctr", [], ["GPU feature discovery"]),
        ("mps-control-daemon-ctr", [], []),
        ("config-manager", [], []),
    ],
)
def test_what_shares_the_image_of_nvidias_plugin_is_told_apart_by_its_container(
    name: str, plugins: list[str], writers: list[str]
) -> None:
    whole = labelled(count=("nodetopo",))
    running = replace(TRAINER, image=NVIDIA, name=name)
    snapshot = replace(whole, pods=(replace(POD, phase="Running", containers=(running,)),))
    assert observed("PLG-005", snapshot) == plugins
    assert observed("PLG-006", snapshot) == writers


def test_a_pod_that_has_ended_is_no_rival() -> None:
    whole = served(image=NVIDIA)
    ended = replace((whole.pods or ())[0], phase="Failed")
    assert observed("PLG-005", replace(whole, pods=(ended,))) == []


def test_a_node_without_our_plugin_is_anothers() -> None:
    snapshot = served("nvidia-device-plugin", sockets=("nvidia-gpu.sock",))
    assert skipped("PLG-005", snapshot) == "nodetopo's device plugin does not run here"


def test_unknown_sockets_and_programs_are_missing() -> None:
    blind = served("nvidia-device-plugin", sockets=None)
    assert missing("PLG-005", blind) == ("sockets of device plugins",)
    assert observed("PLG-005", blind) == []
    assert missing("PLG-005", replace(served(), host=None)) == ("programs that run on the host",)


def test_a_label_with_two_writers_is_found() -> None:
    snapshot = labelled(count=("nfd-master", "nodetopo"), product=("nodetopo",))
    (finding,) = result("PLG-006", snapshot).findings
    assert (finding.subject, finding.observed) == (COUNT, "written by nfd-master, nodetopo")


def test_labels_that_others_alone_write_are_theirs() -> None:
    snapshot = labelled(count=("nodetopo",), present=("gpu-operator",))
    assert observed("PLG-006", snapshot) == []


def test_feature_discovery_beside_our_labels_is_found() -> None:
    assert observed("PLG-006", labelled("gpu-feature-discovery", count=("nodetopo",))) == [
        "GPU feature discovery"
    ]


def test_a_node_without_labels_of_ours_is_anothers() -> None:
    snapshot = labelled("gpu-feature-discovery", count=("nfd-master",))
    assert skipped("PLG-006", snapshot) == "nodetopo writes no nvidia.com/ labels here"


def test_unknown_writers_are_missing() -> None:
    blind = replace(served(), node_status=replace(NODE, label_writers=None))
    assert missing("PLG-006", blind) == ("writers of the Node's labels",)
