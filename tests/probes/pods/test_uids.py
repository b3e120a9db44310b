"""Uids of pods, found by what they hold."""

from msgspec.structs import replace

from nodetopo.model.kubelet_state import CpuState, DeviceState, HeldDevices, KubeletState
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import AssignedDevices, Container, Pod
from nodetopo.probes.pods.uids import uids_by_holdings

GPU = "nvidia.com/gpu"
CPUS = CpuSet.parse("2-3")


def pod(name: str, *ids: str, cpus: CpuSet | None = None, uid: str | None = None) -> Pod:
    devices = (AssignedDevices(resource=GPU, ids=ids),) if ids else ()
    container = Container(name="app", devices=devices, cpus=cpus)
    return Pod(namespace="ml", name=name, uid=uid, containers=(container,))


def held(uid: str, *ids: str, container: str = "app", resource: str = GPU) -> HeldDevices:
    return HeldDevices(pod_uid=uid, container=container, resource=resource, ids={"0": ids})


def state(*devices: HeldDevices, **cpus: CpuSet) -> KubeletState:
    entries = {uid: {"app": each} for uid, each in cpus.items()}
    return KubeletState(
        cpu=CpuState(policy="static", entries=entries), devices=DeviceState(held=devices)
    )


def test_a_pod_is_known_by_one_of_its_devices() -> None:
    found = uids_by_holdings((pod("a", "g0"), pod("b", "g2", "g1")), state(held("u", "g1", "g2")))
    assert found == {("ml", "b"): "u"}


def test_a_pod_is_known_by_its_cpus() -> None:
    assert uids_by_holdings((pod("a", cpus=CPUS),), state(u=CPUS)) == {("ml", "a"): "u"}


def test_a_pod_that_only_shares_is_not_known() -> None:
    assert uids_by_holdings((pod("a", cpus=CpuSet()),), state(u=CpuSet())) == {}


def test_a_device_of_another_container_or_resource_is_no_proof() -> None:
    others = (held("u", "g0", container="side"), held("v", "g0", resource="x/y"))
    assert uids_by_holdings((pod("a", "g0"),), state(*others)) == {}


def test_holdings_of_several_uids_prove_nothing() -> None:
    assert uids_by_holdings((pod("a", "g0"),), state(held("u", "g0"), held("v", "g0"))) == {}
    assert uids_by_holdings((pod("a", "g0", cpus=CPUS),), state(held("u", "g0"), v=CPUS)) == {}


def test_a_pod_that_knows_its_uid_is_left_out() -> None:
    assert uids_by_holdings((pod("a", "g0", uid="w"),), state(held("u", "g0"))) == {}


def test_without_the_kubelet_s_files_nothing_is_known() -> None:
    assert uids_by_holdings((pod("a", "g0"),), None) == {}
    assert uids_by_holdings((pod("a", "g0"),), KubeletState()) == {}


def test_a_pod_is_known_by_the_cpus_that_its_containers_share() -> None:
    shares = replace(pod("a", cpus=CpuSet()), cpus=CPUS)
    assert uids_by_holdings((shares,), state(u=CPUS)) == {("ml", "a"): "u"}
