"""Which GPUs another DRA driver has too, from its slices and from what pods have by claim."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodetopo.components.dra.conditions import ForeignDevices
from nodetopo.components.dra.held import HeldDevices, Holdings
from nodetopo.machines.bundled import machine
from nodetopo.model.dra import ClaimedDevice
from nodetopo.model.node import PodHolding
from tests.components.dra.test_held import Kubelet
from tests.components.dra.test_held import pod as holding
from tests.tools.cluster.export.dra_machines import slices

DGX = machine("dgx-h100")
IDS = tuple(gpu.id for gpu in DGX.gpus)
NVIDIA = "gpu.nvidia.com"


@pytest.fixture
def kubelet() -> Kubelet:
    return Kubelet()


@pytest.fixture
def held(tmp_path: Path, kubelet: Kubelet) -> HeldDevices:
    asked: Any = kubelet
    held = HeldDevices(asked, tmp_path)
    held.keep_up()
    return held


def published(positions: Sequence[int]) -> dict[str, dict[str, Any]]:
    (whole,) = slices(DGX, "n")
    names = {f"gpu-{at}" for at in positions}
    devices = [it for it in whole["spec"]["devices"] if it["name"] in names]
    return {"theirs": {**whole, "spec": {**whole["spec"], "devices": devices}}}


def pod(name: str) -> PodHolding:
    device = ClaimedDevice(driver=NVIDIA, pool="n", name=name, namespace="ml", claim="c")
    return holding(claimed=(device,))


def test_gpus_of_another_drivers_slices_are_not_ours_alone(held: HeldDevices) -> None:
    foreign = ForeignDevices(held)
    assert foreign.look({}, DGX) == {}
    theirs = published(range(4))
    found = foreign.look(theirs, DGX)
    assert found == dict.fromkeys(IDS[:4], NVIDIA)
    assert foreign.look(theirs, DGX) is found, "nothing new"
    assert foreign.look({}, DGX) == {}


def test_our_own_slices_are_nobody_elses(held: HeldDevices) -> None:
    (whole,) = slices(DGX, "n")
    ours = {**whole, "spec": {**whole["spec"], "driver": "nodetopo.io"}}
    assert ForeignDevices(held).look({"ours": ours}, DGX) == {}


def test_a_gpu_stays_theirs_as_long_as_a_pod_has_it_by_claim(
    held: HeldDevices, kubelet: Kubelet
) -> None:
    foreign = ForeignDevices(held)
    foreign.look(published(range(4)), DGX)
    kubelet.pods = [pod("gpu-2")]
    assert foreign.look({}, DGX) == {IDS[2]: NVIDIA}, "the kubelet is asked when slices go"
    kubelet.pods = []
    held.look()
    assert foreign.look({}, DGX) == {}


def test_while_the_kubelet_does_not_answer_what_was_published_stays_theirs(
    held: HeldDevices, kubelet: Kubelet
) -> None:
    foreign = ForeignDevices(held)
    foreign.look(published(range(2)), DGX)
    kubelet.pods = None
    assert foreign.look({}, DGX) == dict.fromkeys(IDS[:2], NVIDIA)
    kubelet.pods = []
    held.look()
    assert foreign.look({}, DGX) == {}


def test_a_claim_of_unknown_devices_can_have_any_gpu(held: HeldDevices, kubelet: Kubelet) -> None:
    kubelet.pods = [pod("gpu-2")]
    held.look()
    foreign = ForeignDevices(held)
    assert foreign.look({}, DGX) == dict.fromkeys(IDS, NVIDIA)
    assert foreign.claimed(held.known or Holdings(), DGX) == dict.fromkeys(IDS, NVIDIA)
