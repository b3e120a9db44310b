"""DGX-1 with V100: 8 GPUs in a hybrid cube mesh, 2 sockets, 4 ConnectX-4, no NVSwitch.

Sources: NVIDIA DGX-1 with Tesla V100 System Architecture whitepaper (WP-08437-002: figure of
the cube mesh, two GPUs and one NIC on each PCIe switch, 2 x Xeon E5-2698 v4, 512 GB); the
links per pair are those of `nvidia-smi topo -m` on real DGX-1V machines. Bus numbers follow
such captures, UUIDs and GUIDs are invented.
"""

from msgspec.structs import replace

from nodetopo.model.nvlink import P2pStatus
from tests.compose import processors
from tests.compose.cards import BROADWELL_PORT, PEX_8796
from tests.compose.gpus import V100_SXM2, gpus
from tests.compose.hca_models import CONNECTX_4
from tests.compose.hcas import in_order, infiniband
from tests.compose.host import host
from tests.compose.kubelet import AS_INSTALLED
from tests.compose.machine import Machine
from tests.compose.parts import Software, compose, console
from tests.compose.pci_tree import Port, build, leaf, port, root, switch
from tests.compose.wiring import mesh, pairs

DOUBLE = ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))
SINGLE = ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7))
LINKS = dict.fromkeys(DOUBLE, 2) | dict.fromkeys(SINGLE, 1)

SWITCHES = (
    (0x03, 0x06, 0x07, 0x05),
    (0x08, 0x0A, 0x0B, 0x0C),
    (0x82, 0x85, 0x86, 0x84),
    (0x87, 0x89, 0x8A, 0x8B),
)
"""Of each PCIe switch: bus of its upstream port, its two GPUs, its NIC."""


def machine() -> Machine:
    """Return the description."""
    cpus = host(processors.XEON_E5_2698V4, sockets=2, memory_mib=257_600)
    tree = build(
        cpus,
        console(_switch(0, 2), _switch(1, 3), model=BROADWELL_PORT),
        root(0x80, _switch(2, 2), _switch(3, 3), model=BROADWELL_PORT, node=1),
    )
    found = gpus(V100_SXM2, tree, cpus, series=0xD61F)
    nvlinks = mesh(found, LINKS, version=2)
    return compose(
        shape="v100x8-cubemesh-2numa-4cx4",
        name="dgx-1v",
        product_name="NVIDIA DGX-1 with V100",
        description="8x V100 SXM2 in a hybrid cube mesh, 2 sockets, 4 ConnectX-4",
        sources=(
            "NVIDIA DGX-1 with Tesla V100 System Architecture whitepaper WP-08437-002",
            "NVIDIA DGX-1 User Guide: hardware specifications",
        ),
        host=cpus,
        tree=tree,
        gpus=found,
        nvlinks=nvlinks,
        pairs=pairs(found, nvlinks, far=P2pStatus.CHIPSET_NOT_SUPPORTED),
        hcas=in_order(
            *(
                infiniband(f"mlx5_{number}", place, CONNECTX_4, number=number, netdev=f"ib{number}")
                for number, place in enumerate(tree.named("nic"))
            ),
        ),
        software=Software(
            is_open=False,
            command_line="BOOT_IMAGE=/boot/vmlinuz-6.8.0-60-generic root=/dev/sda2 ro",
        ),
        kubelet=replace(
            AS_INSTALLED,
            cpu_manager_policy="static",
            reserved_system_cpus="0,20,40,60",
        ),
        has_whole_cpu_tree=True,
    )


def _switch(number: int, device: int) -> Port:
    """Return a root port and its switch: two GPUs and a NIC."""
    upstream, first, second, nic = SWITCHES[number]
    return port(
        switch(
            PEX_8796,
            port(leaf(f"gpu{2 * number}", V100_SXM2.card), device=0x08, bus=first),
            port(leaf(f"gpu{2 * number + 1}", V100_SXM2.card), device=0x10, bus=second),
            port(leaf(f"nic{number}", CONNECTX_4.card), device=0x14, bus=nic),
            bus=upstream + 1,
        ),
        device=device,
        bus=upstream,
    )
