"""What of the picture a way between two devices touches."""

from msgspec import Struct

from nodetopo.drawing.devices import Device, row_name
from nodetopo.drawing.hops import hops, slowest
from nodetopo.model.gpu import Gpu
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot


class Highlight(Struct, frozen=True, kw_only=True):
    """The ends by row name, and the PCIe places between; empty where nothing is shown."""

    ends: frozenset[str] = frozenset()
    addresses: frozenset[PciAddress] = frozenset()
    roots: frozenset[str] = frozenset()
    numas: frozenset[str] = frozenset()
    crossing: frozenset[str] = frozenset()  # the two NUMA nodes, as the tree names them
    # The function at whose link the way is slowest; None where all are equal.
    slow: PciAddress | None = None
    gpus: frozenset[int] = frozenset()  # indices, if both ends are GPUs


def highlight(snapshot: Snapshot, ends: tuple[Device, Device] | None) -> Highlight:
    """Return what the way between *ends* touches; nothing without them."""
    if ends is None:
        return Highlight()
    way = hops(snapshot, *ends) or ()
    speeds = {hop.gb_per_s for hop in way} - {None}
    slow = slowest(way) if len(speeds) > 1 else None
    numas = frozenset(str(hop.numa) for hop in way if hop.numa is not None)
    indices = [end.index for end in ends if isinstance(end, Gpu)]
    return Highlight(
        ends=frozenset(row_name(end, snapshot) for end in ends),
        addresses=frozenset(hop.address for hop in way if hop.address is not None),
        roots=frozenset(hop.root for hop in way if hop.root is not None),
        numas=numas,
        crossing=numas if any(hop.is_crossing for hop in way) else frozenset(),
        slow=slow.address if slow else None,
        gpus=frozenset(indices) if len(indices) == 2 else frozenset(),
    )
