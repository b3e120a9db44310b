"""What pods have without our DRA driver: when the kubelet is asked, and what its answers mean."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.components.dra.held import LOOK_S, RELEASE_S, HeldDevices
from nodetopo.errors import UnreadableError
from nodetopo.machines.bundled import machine
from nodetopo.model.dra import ClaimedDevice
from nodetopo.model.gpu import Mig, MigInstance
from nodetopo.model.node import PlacedDevice, PodHolding
from nodetopo.model.numa import CpuSet
from nodetopo.probes.kubelet.state import CHECKPOINT

DGX = machine("dgx-h100")
UUIDS = tuple(gpu.uuid or "" for gpu in DGX.gpus)


class Kubelet:
    """What pods have; ``None`` while it does not answer."""

    def __init__(self) -> None:
        self.pods: Sequence[PodHolding] | None = ()
        self.asked = 0

    def held(self) -> tuple[PodHolding, ...]:
        """Return it."""
        self.asked += 1
        if self.pods is None:
            raise UnreadableError("the kubelet is busy", "wait")
        return tuple(self.pods)

    def close(self) -> None:
        """Do nothing."""


class Clock:
    """Seconds that the test sets."""

    now = 1000.0

    def __call__(self) -> float:
        """Return them."""
        return self.now


def pod(*ids: str, claimed: tuple[ClaimedDevice, ...] = ()) -> PodHolding:
    placed = tuple(PlacedDevice(resource="x.com/gpu", id=it, numa_nodes=()) for it in ids)
    return PodHolding(
        namespace="ml",
        name="p",
        devices=placed,
        cpus=CpuSet(),
        memory=(),
        claimed=claimed,
    )


def by_claim(driver: str) -> ClaimedDevice:
    return ClaimedDevice(driver=driver, pool="n", name="gpu-0", namespace="ml", claim="c")


@pytest.fixture
def kubelet() -> Kubelet:
    return Kubelet()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def held(tmp_path: Path, kubelet: Kubelet, clock: Clock) -> HeldDevices:
    (tmp_path / CHECKPOINT).write_text("{}")
    asked: Any = kubelet
    return HeldDevices(asked, tmp_path, clock)


def test_the_kubelet_is_asked_at_every_tick_until_it_answers(
    held: HeldDevices, kubelet: Kubelet
) -> None:
    kubelet.pods = None
    for tick in range(1, 4):
        held.keep_up()
        assert (held.known, kubelet.asked) == (None, tick)
    assert "the kubelet is busy" in (held.problem or "")
    kubelet.pods = [pod(UUIDS[0])]
    held.keep_up()
    known = held.known
    assert known is not None
    assert known.gpus(DGX) == {DGX.gpus[0].id: {UUIDS[0]}}
    assert held.problem is None


def test_an_answer_is_kept_while_there_is_no_newer_one(
    held: HeldDevices, kubelet: Kubelet, clock: Clock
) -> None:
    kubelet.pods = [pod(UUIDS[0])]
    held.keep_up()
    before = held.known
    kubelet.pods = None
    clock.now += RELEASE_S
    held.keep_up()
    held.keep_up()
    assert held.known is before
    assert not held.is_answered
    assert kubelet.asked == 3


def test_a_new_checkpoint_is_looked_at_at_once_and_nothing_else_for_long(
    held: HeldDevices, kubelet: Kubelet, clock: Clock, tmp_path: Path
) -> None:
    held.keep_up()
    clock.now += LOOK_S - 1
    held.keep_up()
    assert kubelet.asked == 1
    kubelet.pods = [pod(UUIDS[3])]
    written = tmp_path / "new"
    written.write_text("{}")
    written.replace(tmp_path / CHECKPOINT)
    held.keep_up()
    assert held.known is not None
    assert set(held.known.devices) == {UUIDS[3]}
    held.keep_up()
    assert kubelet.asked == 2
    clock.now += RELEASE_S  # the end of a pod leaves no trace
    kubelet.pods = []
    held.keep_up()
    assert not held.known.devices


def test_without_the_checkpoint_the_kubelet_is_asked_at_every_tick(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    asked: Any = kubelet
    held = HeldDevices(asked, tmp_path / "not-mounted", Clock())
    held.keep_up()
    held.keep_up()
    assert kubelet.asked == 2


def test_a_replica_and_a_mig_device_are_of_their_gpu(held: HeldDevices, kubelet: Kubelet) -> None:
    instance = MigInstance(uuid="MIG-1", profile="1g.10gb")
    mig = Mig(is_enabled=True, instances=(instance,))
    snapshot = replace(DGX, gpus=(replace(DGX.gpus[0], mig=mig), *DGX.gpus[1:]))
    kubelet.pods = [pod("MIG-1"), pod(f"{UUIDS[1]}::0"), pod("0000:1b:00.0")]
    held.keep_up()
    assert held.known is not None
    assert held.known.gpus(snapshot) == {DGX.gpus[0].id: {"MIG-1"}, DGX.gpus[1].id: {UUIDS[1]}}


def test_claims_of_our_own_driver_are_not_somebody_elses(
    held: HeldDevices, kubelet: Kubelet
) -> None:
    theirs = by_claim("gpu.nvidia.com")
    kubelet.pods = [pod(claimed=(by_claim("nodetopo.io"), theirs))]
    held.keep_up()
    assert held.known is not None
    assert held.known.claimed == (theirs,)
