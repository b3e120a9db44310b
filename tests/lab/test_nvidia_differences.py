"""Where ours means to differ from NVIDIA's device plugin v0.19.0, and that NVIDIA's still does so.

Each of these is a known difference with its reason; everything else is in ``test_nvidia_offer``.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.lab.nvidia.cases import GPU, ONE, THREE, Case, sliced
from tests.lab.nvidia.desk import Answer, Desk, Kubelet
from tests.lab.waiting import tail, wait_for

pytestmark = pytest.mark.lab

FindDesk = Callable[[str], Desk]


def test_nvidias_takes_parts_of_a_gpu_instance_for_the_whole_and_ours_offers_no_part(
    desk: FindDesk,
) -> None:
    # A pattern matches anywhere in the profile (api/config/v1/resources.go): 1c.3g.40gb is
    # offered as mig-3g.40gb, and 1g.10gb+me as mig-1g.10gb. Pods would get less than they ask for.
    config = _config(mig="mixed")
    at = desk("parted")
    with at.with_nvidia(config, {GPU, ONE, THREE}) as kubelet:
        theirs = _amounts(kubelet, kubelet.registered)
    named = {GPU, ONE, THREE, f"{ONE}.me"}
    with at.with_ours(config, named) as kubelet:
        ours = _amounts(kubelet, named)

    assert theirs == {GPU: 6, ONE: 2, THREE: 3}
    assert ours == {GPU: 6, ONE: 1, f"{ONE}.me": 1, THREE: 1}
    assert at.ours_offers() == named


def test_nvidias_ends_where_single_wants_gpus_alike_and_ours_says_why_and_waits(
    desk: FindDesk,
) -> None:
    config = _config(mig="single")
    at = desk("mig")
    at.nvidia.start(at.config(config))
    wait_for("NVIDIA's plugin ends", lambda: not at.nvidia.is_running)
    at.start_ours(config)
    wait_for("our daemon says so", lambda: "resource not offered" in at.ours.log_since_start())
    said = at.ours.log_since_start()
    at.ours.stop()

    assert "invalid MIG configuration" in tail(at.nvidia.log)
    assert "in MIG mode without a MIG device: GPU2" in said


def test_nvidias_lists_a_gpu_of_unknown_node_without_one_and_ours_near_all(
    desk: FindDesk,
) -> None:
    # Once another device of the resource has a node, the Topology Manager never counts one
    # without (kubelet 1.36, devicemanager/topology_hints.go).
    at = desk("broken")
    with at.with_nvidia(_config(), {GPU}) as kubelet:
        theirs = _nodes(kubelet)
    with at.with_ours(_config(), {GPU}) as kubelet:
        ours = _nodes(kubelet)

    unknown = {name for name, nodes in theirs.items() if not nodes}
    assert len(unknown) == 1
    assert ours == {name: nodes or (0, 1) for name, nodes in theirs.items()}


def test_nvidias_hands_over_by_a_variable_and_ours_as_the_node_is_set_up(desk: FindDesk) -> None:
    at = desk("whole")
    theirs, ours = _answers(at, "version: v1\n")

    uuid = next(iter(theirs.envs["NVIDIA_VISIBLE_DEVICES"]))
    extras = {"NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED"}
    assert theirs.envs.keys() == {"NVIDIA_VISIBLE_DEVICES", *extras}
    assert not ours.cdi
    assert ours.envs == {"NVIDIA_VISIBLE_DEVICES": frozenset({uuid})}

    with at.with_ours("version: v1\n", {GPU}) as kubelet:
        edits = {"env": ["A=1"]}  # CDI ignores a file whose devices have none
        devices = [
            {"name": device.id, "containerEdits": edits} for device in kubelet.devices(GPU) or ()
        ]
    spec = at.host / "etc/cdi/nvidia.json"
    spec.parent.mkdir(parents=True, exist_ok=True)
    spec.write_text(json.dumps({"cdiVersion": "0.6.0", "kind": GPU, "devices": devices}))
    try:
        theirs, ours = _answers(at, "version: v1\n")
    finally:
        spec.unlink()
    assert theirs.envs["NVIDIA_VISIBLE_DEVICES"] == {uuid}
    assert ours.cdi == {f"{GPU}={uuid}"}
    assert not ours.envs


def test_nvidias_may_name_devices_by_index_and_ours_does_by_uuid(desk: FindDesk) -> None:
    # An index may be another GPU's after a restart; a UUID never is.
    theirs, ours = _answers(desk("whole"), _config(plugin={"deviceIDStrategy": "index"}))

    assert theirs.envs["NVIDIA_VISIBLE_DEVICES"] == {"0"}
    (name,) = ours.envs["NVIDIA_VISIBLE_DEVICES"]
    assert name.startswith("GPU-")


def test_nvidias_ends_where_one_gpu_is_lost_and_ours_offers_the_rest(desk: FindDesk) -> None:
    at = desk("whole")
    at.nvml.fail("lost 3")
    try:
        at.nvidia.start(at.config(_config()))
        wait_for("NVIDIA's plugin ends", lambda: not at.nvidia.is_running)
        with at.with_ours(_config(), {GPU}) as kubelet:
            ours = kubelet.devices(GPU) or ()
    finally:
        at.nvml.fail()

    assert "GPU is lost" in tail(at.nvidia.log)
    assert len([device for device in ours if device.is_healthy]) == 7


def test_xid_79_takes_one_replica_of_four_from_nvidias_and_leaves_it_three(desk: FindDesk) -> None:
    # One device of the resource is remembered for each GPU (v0.19.0, internal/rm/health.go).
    at = desk("whole")
    config = _config(slicing=sliced((GPU, 4)))
    before = len(at.nvml.registered)
    with at.with_nvidia(config, {GPU}) as kubelet:
        _wait_watched(at, before, gpus=8)
        at.nvml.xid(0, 79)
        wait_for("a device is unhealthy", lambda: _unhealthy(kubelet), evidence=at.evidence)
        gpu = _gpus(_unhealthy(kubelet))
        left = [one for one in kubelet.devices(GPU) or () if one.is_healthy]

    assert len(gpu) == 1
    assert len([one for one in left if one.uuid in gpu]) == 3


def test_xid_79_takes_all_four_replicas_from_ours(desk: FindDesk) -> None:
    at = desk("whole")
    before = len(at.nvml.registered)
    with at.with_ours(_config(slicing=sliced((GPU, 4))), {GPU}) as kubelet:
        _wait_watched(at, before, gpus=8)
        at.nvml.xid(0, 79)
        wait_for(
            "four devices are unhealthy",
            lambda: len(_unhealthy(kubelet)) == 4,
            evidence=at.evidence,
        )
        lost = _unhealthy(kubelet)

    assert len(_gpus(lost)) == 1


def _config(**wanted: Any) -> str:
    return Case(machine="", amounts={}, **wanted).config


def _amounts(kubelet: Kubelet, resources: set[str]) -> Mapping[str, int]:
    return {name: len(kubelet.devices(name) or ()) for name in resources}


def _nodes(kubelet: Kubelet) -> Mapping[str, tuple[int, ...]]:
    return {device.id: device.numa_nodes for device in kubelet.devices(GPU) or ()}


def _answers(at: Desk, config: str) -> tuple[Answer, Answer]:
    """Return what each hands over for the first GPU."""
    given = []
    for running in (at.with_nvidia, at.with_ours):
        with running(config, {GPU}) as kubelet:
            first, *_ = kubelet.devices(GPU) or ()
            answer = kubelet.answer(GPU, [first.id])
            assert answer is not None, "refused"
            given.append(answer)
    theirs, ours = given
    return theirs, ours


def _wait_watched(at: Desk, before: int, *, gpus: int) -> None:
    """Wait until all *gpus* were registered for events, after the first *before* times."""

    def watched() -> bool:
        return len({gpu for _, gpu, _ in at.nvml.registered[before:]}) == gpus

    wait_for("XIDs are watched", watched, evidence=at.evidence)


def _unhealthy(kubelet: Kubelet) -> list[str]:
    return [device.id for device in kubelet.devices(GPU) or () if not device.is_healthy]


def _gpus(replicas: list[str]) -> set[str]:
    return {name.partition("::")[0] for name in replicas}
