"""When the device plugin learns that a DRA driver has GPUs of the node."""

import socket
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from nodetopo.components.dra.neighbours import CLAIMS_S, CLASSES_S, DraNeighbours, claims_of
from nodetopo.kubeapi.client import Answer
from nodetopo.kubeapi.slices import SliceWatch
from nodetopo.machines.bundled import machine
from nodetopo.model.dra import ClaimedDevice
from tests.tools.cluster.export.dra_machines import slices

DGX = machine("dgx-h100")
CLASS = {"metadata": {"name": "c"}, "spec": {"extendedResourceName": "nvidia.com/gpu"}}


class Classes:
    """An API server that has one class."""

    host = "https://lab"

    def __init__(self) -> None:
        self.asked = 0
        self.status = 200

    def get(self, path: str, query: Mapping[str, str], max_bytes: int = 0) -> Answer:
        """Return the list."""
        del query, max_bytes
        assert path.endswith("/deviceclasses")
        self.asked += 1
        return Answer(status=self.status, body={"items": [CLASS]}, retry_after_s=None)


class Clock:
    """Seconds that the test sets."""

    now = 1000.0

    def __call__(self) -> float:
        """Return them."""
        return self.now


@pytest.fixture
def watch() -> SliceWatch:
    return SliceWatch(None, "n")


class Kubelet:
    """What pods have by claim, as the kubelet says."""

    def __init__(self, *claimed: ClaimedDevice) -> None:
        self.claimed: tuple[ClaimedDevice, ...] | None = claimed
        self.asked = 0

    def __call__(self) -> tuple[ClaimedDevice, ...] | None:
        """Return it; ``None`` while the kubelet does not answer."""
        self.asked += 1
        return self.claimed


def neighbours(
    watch: SliceWatch,
    registry: Path,
    classes: Classes | None = None,
    clock: Clock | None = None,
    kubelet: Kubelet | None = None,
) -> DraNeighbours:
    api: Any = classes or Classes()
    return DraNeighbours(watch, lambda: api, registry, kubelet or Kubelet(), clock or Clock())


def by_claim(name: str, driver: str = "gpu.nvidia.com", *cdi: str) -> ClaimedDevice:
    return ClaimedDevice(
        driver=driver, pool="n", name=name, namespace="default", claim="c", cdi_devices=cdi
    )


def publish(watch: SliceWatch) -> None:
    watch._publish({it["metadata"]["name"]: it for it in slices(DGX, "n")})


def half(positions: Collection[int], *, generation: int) -> dict[str, Any]:
    """Return a slice of NVIDIA's pool with some of its GPUs."""
    (whole,) = slices(DGX, "n")
    spec, names = whole["spec"], {f"gpu-{at}" for at in positions}
    return {
        **whole,
        "metadata": {"name": f"slice-{min(positions)}"},
        "spec": {
            **spec,
            "pool": {"name": "n", "generation": generation, "resourceSliceCount": 2},
            "devices": [it for it in spec["devices"] if it["name"] in names],
        },
    }


def test_gpus_are_ours_until_slices_say_otherwise_and_again_afterwards(
    watch: SliceWatch, tmp_path: Path
) -> None:
    classes = Classes()
    classes.status = 404
    found = neighbours(watch, tmp_path, classes)
    assert not found.look(DGX)
    publish(watch)
    assert len(found.look(DGX).gpus) == 8
    watch._publish({})
    assert not found.look(DGX)


@pytest.mark.parametrize("middle", ["", "-0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"])
def test_a_socket_of_a_driver_is_evidence_until_the_slices_are_known(
    watch: SliceWatch, middle: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # a long path is no path of a socket
    found = neighbours(watch, Path())
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"gpu.nvidia.com{middle}-reg.sock")
        assert not found.look(DGX), "nobody listens"
        listener.listen()
        assert found.look(DGX).suspect == "gpu.nvidia.com"
        watch._publish({})
        assert not found.look(DGX)


def test_nothing_new_is_the_same_object(watch: SliceWatch, tmp_path: Path) -> None:
    found = neighbours(watch, tmp_path)
    publish(watch)
    assert found.look(DGX) is found.look(DGX)


def test_classes_are_read_seldom_and_only_beside_another_driver(
    watch: SliceWatch, tmp_path: Path
) -> None:
    classes, clock = Classes(), Clock()
    found = neighbours(watch, tmp_path, classes, clock)
    watch._publish({})
    found.look(DGX)
    assert classes.asked == 0
    publish(watch)
    for _ in range(5):
        assert dict(found.look(DGX).resources) == {"nvidia.com/gpu": "c"}
    assert classes.asked == 1
    clock.now += CLASSES_S
    classes.status = 500
    assert dict(found.look(DGX).resources) == {"nvidia.com/gpu": "c"}, "as known before"
    assert classes.asked == 2


def test_an_account_without_rights_still_steps_back_by_slices(
    watch: SliceWatch, tmp_path: Path
) -> None:
    classes = Classes()
    classes.status = 403
    found = neighbours(watch, tmp_path, classes)
    publish(watch)
    served = found.look(DGX)
    assert (len(served.gpus), dict(served.resources)) == (8, {})


def test_devices_are_unknown_before_the_slices_are(watch: SliceWatch, tmp_path: Path) -> None:
    found = neighbours(watch, tmp_path)
    before = found.devices
    publish(watch)
    assert (before, len(found.devices or ())) == (None, 8)


def test_a_pool_in_the_middle_of_an_update_still_has_all_its_gpus(
    watch: SliceWatch, tmp_path: Path
) -> None:
    found = neighbours(watch, tmp_path)
    first, second = half(range(4), generation=2), half(range(4, 8), generation=1)
    watch._publish({it["metadata"]["name"]: it for it in (first, second)})
    assert len(found.look(DGX).gpus) == 8


def test_gpus_that_pods_still_have_by_claim_outlast_the_slices(
    watch: SliceWatch, tmp_path: Path
) -> None:
    """The kubelet deletes them 30 s after their driver is gone, as for an upgrade of it."""
    clock, kubelet = Clock(), Kubelet(by_claim("gpu-2"), by_claim("gpu-5"))
    found = neighbours(watch, tmp_path, clock=clock, kubelet=kubelet)
    publish(watch)
    found.look(DGX)
    watch._publish({})
    clock.now += CLAIMS_S
    served = found.look(DGX)
    assert set(served.gpus) == {DGX.gpus[2].id, DGX.gpus[5].id}
    (sentence,) = served.sentences()
    assert sentence.startswith("2 GPUs are in use by claims of the DRA driver gpu.nvidia.com, and ")
    kubelet.claimed = (by_claim("gpu-5"),)
    assert found.look(DGX) is served, "it is not asked all the time"
    clock.now += CLAIMS_S
    assert set(found.look(DGX).gpus) == {DGX.gpus[5].id}
    kubelet.claimed = ()
    clock.now += CLAIMS_S
    assert not found.look(DGX)


def test_a_kubelet_that_does_not_answer_gives_no_gpu_back(
    watch: SliceWatch, tmp_path: Path
) -> None:
    clock, kubelet = Clock(), Kubelet()
    found = neighbours(watch, tmp_path, clock=clock, kubelet=kubelet)
    publish(watch)
    found.look(DGX)
    watch._publish({})
    kubelet.claimed = None
    clock.now += CLAIMS_S
    assert len(found.look(DGX).gpus) == 8
    kubelet.claimed = ()
    clock.now += CLAIMS_S
    assert not found.look(DGX)


def test_the_kubelet_is_asked_only_while_its_answer_matters(
    watch: SliceWatch, tmp_path: Path
) -> None:
    clock, kubelet = Clock(), Kubelet()
    found = neighbours(watch, tmp_path, clock=clock, kubelet=kubelet)
    publish(watch)
    for _ in range(5):
        assert len(found.look(DGX).gpus) == 8
        clock.now += CLAIMS_S
    assert kubelet.asked == 1


@pytest.mark.parametrize("is_known", [False, True])
def test_claims_from_before_the_start_are_evidence(
    watch: SliceWatch, tmp_path: Path, is_known: bool
) -> None:
    """Without slices nobody knows which GPUs they are, unless their CDI names say it."""
    clock, kubelet = Clock(), Kubelet(by_claim("gpu-2"))
    found = neighbours(watch, tmp_path, clock=clock, kubelet=kubelet)
    if is_known:
        watch._publish({})
    assert found.look(DGX).suspect == "gpu.nvidia.com"
    ours = by_claim("gpu-1b", "nodetopo.io", f"nvidia.com/gpu={DGX.gpus[3].uuid}")
    kubelet.claimed = (ours, by_claim("nic", "dra.net"))
    clock.now += CLAIMS_S
    assert (set(found.look(DGX).gpus), found.look(DGX).suspect) == ({DGX.gpus[3].id}, None)


def test_a_kubelet_whose_directory_is_not_mounted_keeps_nothing_back(tmp_path: Path) -> None:
    assert claims_of(tmp_path / "kubelet.sock")() is None
    assert claims_of(tmp_path / "none" / "kubelet.sock")() == ()
