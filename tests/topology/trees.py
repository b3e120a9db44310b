"""Small machines with a PCI tree, built by hand for NCCL's classifier."""

from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import Hca, HcaKind, HcaPort, LinkLayer
from nodetopo.model.pci import PciAddress, PcieLink, PciFunction, PciPath

GEN5 = PcieLink(max_generation=5, max_width=16)


def bus(number: int) -> PciAddress:
    """Function 0 on a bus of domain 0."""
    return PciAddress(0, number, 0, 0)


def path(*hops: int, root: str = "pci0000:00") -> PciPath:
    """The path below the bridges on these buses, the device last."""
    return PciPath(root=root, hops=tuple(bus(hop) for hop in hops))


def gpu(
    index: int,
    *hops: int,
    numa: int | None = 0,
    link: PcieLink | None = GEN5,
    capability: tuple[int, int] | None = (9, 0),
) -> Gpu:
    """A Hopper GPU below the bridges on *hops*."""
    place = path(*hops)
    return Gpu(
        index=index,
        pci=place.hops[-1],
        path=place,
        numa_node=numa,
        function=PciFunction(link=link),
        compute_capability=capability,
    )


def hca(
    name: str,
    *hops: int,
    numa: int | None = 0,
    rates: tuple[float | None, ...] = (400.0,),
    link: PcieLink | None = GEN5,
    function: int = 0,
    guid: str | None = None,
    kind: HcaKind | None = HcaKind.PHYSICAL,
) -> Hca:
    """An HCA with one active port for each of *rates*, in Gb/s."""
    above = path(*hops)
    place = PciPath(
        root=above.root,
        hops=(*above.hops[:-1], PciAddress(0, hops[-1], 0, function)),
    )
    return Hca(
        name=name,
        kind=kind,
        pci=place.hops[-1],
        path=place,
        numa_node=numa,
        function=PciFunction(link=link),
        sys_image_guid=guid,
        ports=tuple(
            HcaPort(number=at, state="ACTIVE", layer=LinkLayer.INFINIBAND, rate_gbps=rate)
            for at, rate in enumerate(rates, 1)
        ),
    )
