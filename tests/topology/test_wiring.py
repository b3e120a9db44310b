"""Which GPUs are modules with wired NVLinks, by each thing that a driver may say of them."""

import pytest
from msgspec.structs import replace

from nodetopo.machines.bundled import machine
from nodetopo.model.gpu import Fabric, FabricState, Gpu, NvidiaDriver
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.wiring import is_module, modules_without_links, wired_gpus


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H100 80GB HBM3",
        "NVIDIA H800",
        "NVIDIA H20",
        "NVIDIA H20-3e",
        "NVIDIA H200",
        "NVIDIA GH200 480GB",
        "NVIDIA B200",
        "NVIDIA B300 SXM6 AC",
        "NVIDIA GB200",
        "NVIDIA GB300",
        "NVIDIA A100-SXM4-40GB",
        "Tesla V100-SXM2-16GB",
    ],
)
def test_modules_are_known_by_their_names(name: str) -> None:
    assert is_module(Gpu(index=0, product=name))


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H100 PCIe",
        "NVIDIA H100 NVL",
        "NVIDIA H200 NVL",
        "NVIDIA H200-1-18C",
        "NVIDIA A100 80GB PCIe",
        "NVIDIA L40S",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        None,
    ],
)
def test_cards_are_no_modules(name: str | None) -> None:
    assert not is_module(Gpu(index=0, product=name))


@pytest.mark.parametrize("state", FabricState)
def test_a_gpu_that_registers_with_a_fabric_is_a_module(state: FabricState) -> None:
    gpu = Gpu(index=0, product="NVIDIA X900", fabric=Fabric(state=state))
    assert is_module(gpu) == (state is not FabricState.NOT_SUPPORTED)


def _dark(count: int) -> Snapshot:
    """Return the first modules of a mesh, all their links down and without a far end."""
    whole = machine("hgx-a100-4")
    links = (
        replace(link, is_active=False, peer=None, peer_kind=None)
        for link in whole.nvlinks or ()
        if link.gpu < count
    )
    return replace(whole, gpus=whole.gpus[:count], nvlinks=tuple(links))


def test_several_modules_are_wired_and_one_alone_is_not() -> None:
    assert wired_gpus(_dark(2)) == {0, 1}
    assert wired_gpus(_dark(1)) == frozenset()


def test_modules_that_list_no_link_are_missed_unless_the_driver_turned_them_off() -> None:
    silent = replace(_dark(2), nvlinks=())
    assert [gpu.index for gpu in modules_without_links(silent)] == [0, 1]
    off = NvidiaDriver(parameters={"NvLinkDisable": "1"})
    assert modules_without_links(replace(silent, nvidia=off)) == ()
    assert modules_without_links(replace(_dark(1), nvlinks=())) == ()
