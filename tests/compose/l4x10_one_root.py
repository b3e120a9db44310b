"""10 L4 below one root port, through a switch with two switches below it; the other socket bare.

Sources: Supermicro SYS-4029GP-TRT2 manual (single root complex: all ten GPU slots and a network
slot hang on CPU 1 through PCIe 3 switches, CPU 2 has a slot of its own); `nvidia-smi topo -m` of
single-root machines (PIX below one switch, PXB across, none PHB; a network card of the other
socket is SYS to all); NVIDIA L4 product brief (single slot, 24 GB, PCIe 4.0 x16, which runs as
3.0 here).
"""

from msgspec.structs import replace

from nodetopo.model.gpu import Gpu
from nodetopo.model.pci import IommuType, PcieLink
from tests.compose import processors
from tests.compose.cards import PEX_8796, SKYLAKE_PORT, link
from tests.compose.gpus import gpus
from tests.compose.hcas import CONNECTX_5, in_order, infiniband
from tests.compose.host import host
from tests.compose.machine import Machine
from tests.compose.parts import compose, console
from tests.compose.pci_tree import Port, Switch, build, leaf, port, root, switch
from tests.compose.pcie_gpus import L4
from tests.compose.wiring import pairs

SLOWED = PcieLink(generation=3, width=16, max_generation=4, max_width=16)
"""sysfs's maximum is the card's own, whatever it is plugged into."""


def machine() -> Machine:
    """Return the description."""
    cpus = host(processors.XEON_8168, sockets=2, memory_mib=193_000)
    near = port(leaf("nic0", CONNECTX_5.card))
    tree = build(
        cpus,
        console(model=SKYLAKE_PORT),
        root(
            0x17,
            port(switch(PEX_8796, _five(0, near), _five(5))),
            model=SKYLAKE_PORT,
            node=0,
        ),
        root(0xAE, port(leaf("nic1", CONNECTX_5.card)), model=SKYLAKE_PORT, node=1),
        iommu=IommuType.IDENTITY,
    )
    found = tuple(_as_nvml_says(gpu) for gpu in gpus(L4, tree, cpus, series=0x410))
    return compose(
        shape="l4x10-pcie-1root-2switch",
        name=None,
        product_name="SYS-4029GP-TRT2",
        description="10x L4 below one root port, 2 ConnectX-5: one beside GPUs, one on socket 1",
        sources=(
            "Supermicro SYS-4029GP-TRT2 user manual: system block diagram",
            "`nvidia-smi topo -m` of single-root machines in public",
            "NVIDIA L4 GPU product brief",
        ),
        host=cpus,
        tree=tree,
        gpus=found,
        pairs=pairs(found, ()),
        hcas=in_order(
            *(
                infiniband(f"mlx5_{at}", place, CONNECTX_5, number=at, netdev=f"ib{at}")
                for at, place in enumerate(tree.named("nic"))
            ),
        ),
    )


def _five(first: int, *others: Port) -> Switch:
    """Return a switch with five GPUs and what else is plugged into it."""
    card = replace(L4.card, link=SLOWED)
    slots = (port(leaf(f"gpu{first + at}", card), link=link(3)) for at in range(5))
    return switch(PEX_8796, *slots, *others)


def _as_nvml_says(gpu: Gpu) -> Gpu:
    """Return *gpu* with NVML's maximum, which is that of the card in this machine."""
    return replace(gpu, pcie=link(3))
