"""How many lanes GPUs have, and could have."""

from msgspec.structs import replace

from nodetopo.machines.bundled import machine
from nodetopo.model.pci import PcieLink
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.lanes import lanes, missing_lanes

H100 = machine("dgx-h100")


def with_link(snapshot: Snapshot, gpu: int, link: PcieLink | None) -> Snapshot:
    gpus = (replace(one, pcie=link) if one.index == gpu else one for one in snapshot.gpus)
    return replace(snapshot, gpus=tuple(gpus))


def test_a_link_that_trained_to_fewer_lanes_lacks_them() -> None:
    narrow = with_link(H100, 3, PcieLink(width=4, max_width=16))
    assert missing_lanes(narrow) == {3: (4, 16)}
    assert missing_lanes(H100) == {}


def test_a_slot_with_fewer_lanes_is_no_fault_of_the_link() -> None:
    path = H100.gpus[3].path
    assert path is not None
    bridges = (
        replace(bridge, link=PcieLink(max_width=8)) if bridge.address == path.hops[-2] else bridge
        for bridge in H100.bridges or ()
    )
    narrow = with_link(replace(H100, bridges=tuple(bridges)), 3, PcieLink(width=8, max_width=16))
    assert lanes(narrow)[3] == (8, 8)
    assert missing_lanes(narrow) == {}


def test_a_width_that_is_not_reported_stays_unknown() -> None:
    for link in (None, PcieLink(), PcieLink(width=4), PcieLink(max_width=16)):
        assert lanes(with_link(H100, 3, link))[3] is None
