"""DGX-2: 16 V100 on two boards of 6 NVSwitches each, 2 sockets, a NIC beside each pair of GPUs.

Sources: hwloc's published description of a DGX-2 (PCI tree, bus numbers, PCI ids, memory);
NVIDIA DGX-2 User Guide (2 x Xeon Platinum 8168, 8 InfiniBand adapters at buses 35, 3a, 58, 5d,
b8, bd, e1, e6, a dual-port Ethernet adapter at 86); NVIDIA NVSwitch technical overview (each GPU
has one link to each of the 6 NVSwitches of its board, the boards are joined switch to switch).
"""

from tests.compose import processors
from tests.compose.cards import NVSWITCHES, PEX_9781, SKYLAKE_PORT
from tests.compose.gpus import V100_SXM3, gpus
from tests.compose.hca_models import CONNECTX_5, on_ethernet
from tests.compose.hcas import in_order, infiniband, roce
from tests.compose.host import host
from tests.compose.machine import Machine
from tests.compose.parts import Software, compose, console, nvswitch_addresses
from tests.compose.pci_tree import Port, Root, build, leaf, port, root, switch
from tests.compose.wiring import fabric, pairs

ROOTS = (0x2B, 0x4E, 0xAE, 0xD7)
"""Bus of each host bridge with four GPUs and two NICs."""

STORAGE = 0x86
SLOTS = ((0x2, 19), (0x3, 20), (0x4, 21), (0xA, 23), (0xB, 24), (0xC, 25))
"""Of a board's NVSwitches: downstream port, and bus from the host bridge's on."""


def machine() -> Machine:
    """Return the description."""
    cpus = host(processors.XEON_8168, sockets=2, memory_mib=772_700)
    ethernet = on_ethernet(CONNECTX_5)
    tree = build(
        cpus,
        console(model=SKYLAKE_PORT),
        root(
            STORAGE - 1,
            port(leaf("storage0", ethernet), leaf("storage1", ethernet, function=1), device=0),
            model=SKYLAKE_PORT,
            node=1,
        ),
        *(_quad(number) for number in range(4)),
    )
    found = gpus(V100_SXM3, tree, cpus, series=0xD62)
    switches = nvswitch_addresses(tree)
    nvlinks = (
        *fabric(found[:8], switches[:6], (1,) * 6, version=2),
        *fabric(found[8:], switches[6:], (1,) * 6, version=2),
    )
    names = (0, 1, 2, 3, 6, 7, 8, 9)
    return compose(
        shape="v100x16-nvswitch-2numa-8cx",
        name="dgx-2",
        product_name="NVIDIA DGX-2",
        description="16x V100 SXM3, 12 NVSwitch, 2 sockets, 8 + 2 ConnectX-5",
        sources=(
            "hwloc tests/hwloc/xml/nvidiaDGX2.xml: PCI tree of a DGX-2",
            "NVIDIA DGX-2/2H User Guide: hardware specifications and network ports",
            "NVIDIA NVSwitch technical overview (WP-09183)",
        ),
        host=cpus,
        tree=tree,
        gpus=found,
        nvlinks=nvlinks,
        pairs=pairs(found, nvlinks),
        hcas=in_order(
            *(
                infiniband(
                    f"mlx5_{name}", place, CONNECTX_5, number=name, netdev=f"ibp{place.pci.bus}s0"
                )
                for name, place in zip(names, tree.named("nic"), strict=True)
            ),
            *(
                roce(
                    f"mlx5_{4 + at}",
                    tree[f"storage{at}"],
                    CONNECTX_5,
                    number=4 + at,
                    netdev=f"enp134s0f{at}np{at}",
                    address=f"10.0.2.{at + 1}",
                )
                for at in range(2)
            ),
        ),
        software=Software(
            is_open=False,
            command_line="BOOT_IMAGE=/boot/vmlinuz-6.8.0-60-generic root=/dev/md0 ro",
        ),
    )


def _quad(number: int) -> Root:
    """Return a host bridge with two pairs of GPUs, and on two of the four a board's NVSwitches."""
    bus = ROOTS[number]
    slots = [_pair(number, 0, device=0x4), _pair(number, 1, device=0xC)]
    if number in (1, 2):
        board = number - 1
        nvswitches = (
            port(leaf(f"nvswitch{6 * board + at}", NVSWITCHES[1]), device=device, bus=bus + offset)
            for at, (device, offset) in enumerate(SLOTS)
        )
        slots.append(port(switch(PEX_9781, *nvswitches, bus=bus + 18), device=0x10, bus=bus + 17))
    below = port(switch(PEX_9781, *slots, bus=bus + 2), device=0, bus=bus + 1)
    return root(bus, below, model=SKYLAKE_PORT, node=number // 2)


def _pair(quad: int, half: int, *, device: int) -> Port:
    """Return a switch with two GPUs and the NIC between them."""
    first, gpu = ROOTS[quad] + 7 + 5 * half, 4 * quad + 2 * half
    pair = switch(
        PEX_9781,
        port(leaf(f"gpu{gpu}", V100_SXM3.card), device=0x00, bus=first + 2),
        port(leaf(f"nic{2 * quad + half}", CONNECTX_5.card), device=0x08, bus=first + 3),
        port(leaf(f"gpu{gpu + 1}", V100_SXM3.card), device=0x10, bus=first + 4),
        bus=first + 1,
    )
    return port(pair, device=device, bus=first)
