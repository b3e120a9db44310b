"""The slowest hop of a way."""

from msgspec.structs import replace

from nodetopo.cli.topo.path import way
from nodetopo.machines.bundled import machine
from nodetopo.model.pci import PcieLink
from nodetopo.model.snapshot import Snapshot


def test_a_narrow_device_is_the_slowest_hop() -> None:
    assert _slowest(PcieLink(generation=5, width=8, max_generation=5, max_width=16)) == (
        "NIC0",
        "gen5 x8 (of gen5 x16)",
        31.5,
    )


def test_an_idle_link_counts_with_its_highest_generation() -> None:
    assert _slowest(PcieLink(generation=1, width=16, max_generation=4, max_width=16)) == (
        "NIC0",
        "gen1 x16 (of gen4 x16)",
        31.5,
    )


def test_an_unknown_link_is_not_called_slow() -> None:
    assert _slowest(None) == ("GPU0", "gen5 x16", 63.0)


def test_a_way_without_places_has_no_hops() -> None:
    snapshot = machine("dgx-h100")
    hca = replace(snapshot.hcas[0], path=None) if snapshot.hcas else None
    assert hca is not None
    changed = replace(snapshot, hcas=(hca, *(snapshot.hcas or ())[1:]))
    found = way(changed, changed.gpus[0], hca)
    assert (found["hops"], found["slowest"]) == (None, None)


def _slowest(link: PcieLink | None) -> tuple[str, str, float]:
    snapshot = _with_nic(machine("dgx-h100"), link)
    hop = way(snapshot, snapshot.gpus[0], (snapshot.hcas or ())[0])["slowest"]
    return hop["what"], hop["link"], hop["gb_per_s"]


def _with_nic(snapshot: Snapshot, link: PcieLink | None) -> Snapshot:
    first, *others = snapshot.hcas or ()
    assert first.function is not None
    return replace(
        snapshot, hcas=(replace(first, function=replace(first.function, link=link)), *others)
    )
