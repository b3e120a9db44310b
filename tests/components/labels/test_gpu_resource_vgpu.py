"""Labels of guests with virtual GPUs."""

import pytest

from nodetopo.model.gpu import Virtualization
from nodetopo.model.pci import PciFunction, VgpuHost
from nodetopo.model.snapshot import Snapshot
from tests.components.labels.gfd_machines import H100, changed, gfd, with_gpus

HOST = PciFunction(
    pci_class="030200", vgpu_host=VgpuHost(driver_version="580.95.02", driver_branch="r580_95")
)
PLAIN = PciFunction(pci_class="030200")


def test_a_guest_names_the_driver_of_its_host() -> None:
    guest = with_gpus(H100, virtualization=Virtualization.VGPU, function=HOST)
    assert changed(H100, guest) == {
        "vgpu.host-driver-branch": "r580_95",
        "vgpu.host-driver-version": "580.95.02",
        "vgpu.present": "true",
    }


@pytest.mark.parametrize(
    ("guest", "present"),
    [
        (with_gpus(H100, virtualization=Virtualization.VGPU), "true"),
        (with_gpus(H100, 3, virtualization=Virtualization.VGPU), "true"),
        (with_gpus(H100, virtualization=None, function=HOST), "true"),
        (with_gpus(H100, virtualization=Virtualization.PASSTHROUGH), "false"),
        (with_gpus(H100, virtualization=Virtualization.HOST_VGPU), "false"),
        (with_gpus(H100, virtualization=None), None),
        (with_gpus(H100, 3, virtualization=None), None),
        (with_gpus(H100, 3, virtualization=None, is_lost=True), None),
        (with_gpus(H100, is_lost=True), "false"),  # as last known
        (with_gpus(H100, virtualization=None, is_lost=True), None),
    ],
)
def test_a_node_has_vgpus_if_any_gpu_is_one(guest: Snapshot, present: str | None) -> None:
    assert gfd(guest).get("vgpu.present") == present


def test_the_first_gpu_that_tells_of_its_host_speaks_for_all() -> None:
    other = PciFunction(vgpu_host=VgpuHost(driver_version="1", driver_branch="r1"))
    guest = with_gpus(with_gpus(H100, function=other), 0, function=PLAIN)
    last = with_gpus(guest, 7, function=HOST)
    assert gfd(last)["vgpu.host-driver-version"] == "1"


def test_a_gpu_without_a_place_on_the_bus_has_no_host() -> None:
    assert "vgpu.host-driver-version" not in gfd(with_gpus(H100, function=None))
