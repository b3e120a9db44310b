"""Data Direct functions: a second way from a ConnectX-8 to GPU memory.

Which RDMA device one serves is known to the firmware alone: the kernel compares the VPD
keyword VU of the function with the answer to a command that it gives the adapter (kernel
drivers/infiniband/hw/mlx5/data_direct.c and main.c, mlx5_ib_data_direct_init), and rdma-core
hands programs the outcome (mlx5dv_get_data_direct_sysfs_path). sysfs does not show it. What it
shows is the card: NVIDIA's mstflint takes an adapter and a Data Direct function for one card
when their VPD keywords V3, the card's UUID, are equal.
"""

from collections.abc import Iterable

from agent.model.hca import DataDirect, Hca, HcaKind
from agent.model.pci import PciAddress
from agent.probes.sysfs.pcie import MELLANOX, PciTree

_CARD = "V3"
_SERVED = (HcaKind.PHYSICAL, HcaKind.BOND)
"""Firmware gives virtual functions and subfunctions no Data Direct unless it was configured
(NVIDIA DOCA, Data Direct Control sample)."""


def read_data_directs(tree: PciTree, hcas: Iterable[Hca]) -> tuple[DataDirect, ...] | None:
    """Return the Data Direct functions by address; ``None`` where there is no PCI bus to read.

    A function serves the HCAs of its card; of two functions on one card, nothing in sysfs tells
    which serves whom, so neither is given any.
    """
    if not tree.is_readable:
        return None
    functions = tree.data_direct()
    cards = [_card(tree, function.address) for function in functions]
    served = _by_card(tree, hcas) if functions else {}
    return tuple(
        DataDirect(
            pci=function.address,
            path=function.path,
            function=function.facts,
            numa_node=function.numa_node,
            hcas=served.get(card, ()) if card and cards.count(card) == 1 else (),
        )
        for function, card in zip(functions, cards, strict=True)
    )


def _by_card(tree: PciTree, hcas: Iterable[Hca]) -> dict[str, tuple[str, ...]]:
    named: dict[str, list[str]] = {}
    for hca in hcas:
        is_served = hca.kind in _SERVED and hca.function and hca.function.vendor == MELLANOX
        card = _card(tree, hca.pci) if is_served and hca.pci else None
        if card:
            named.setdefault(card, []).append(hca.name)
    return {card: tuple(sorted(names)) for card, names in named.items()}


def _card(tree: PciTree, address: PciAddress) -> str | None:
    vpd = tree.vpd(address)
    return None if vpd is None else vpd.get(_CARD)
