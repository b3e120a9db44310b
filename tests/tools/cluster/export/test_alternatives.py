"""What a claim's alternatives are worth, over every set of GPUs that may be free."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.allocation.allocator import Allocator
from nodetopo.machines import bundled
from nodetopo.model.dra import NUMA_NODE, PCIE_ROOT
from nodetopo.model.gpu import Mig
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.cluster.export.alternatives import MOST, Layout, plain, ranked
from nodetopo.tools.cluster.export.dra import claim_spec
from tests.tools.cluster.export.dra_machines import free_sets, slices, taken

_SEEDS = 2
"""Orders in which the driver publishes."""


def any_gpus(size: int) -> Mapping[str, Any]:
    """Return the claim without knowledge of the machine."""
    exactly = {"deviceClassName": "gpu.nvidia.com", "count": size}
    return {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}


def worse(snapshot: Snapshot, spec: Mapping[str, Any], size: int) -> tuple[float, float]:
    """Return the share of free sets, and orders, in which a claim gets less than could be had.

    First of bandwidth or NUMA nodes, then in any term that comes before what is left to others.
    """
    allocator = Allocator(snapshot)
    ids = {f"gpu-{gpu.index}": gpu.id for gpu in snapshot.gpus}
    lost = less = count = 0
    for seed in range(_SEEDS):
        devices = slices(snapshot, "n", seed=seed)[0]["spec"]["devices"]
        for free in free_sets(devices, size + 1):
            chosen = taken(spec, devices, free)
            assert chosen is not None
            available = [ids[name] for name in free]
            best = allocator.allocate(available=available, size=size).score
            got = allocator.describe([ids[name] for name in chosen], available).score
            count += 1
            lost += got.lost_at(best, ("bandwidth_gb_s", "numa_nodes")) is not None
            terms = ("bandwidth_gb_s", "pair_bandwidth_gb_s", "numa_nodes", "sockets")
            less += got.lost_at(best, terms) is not None
    return lost / count, less / count


@pytest.mark.parametrize(
    ("machine", "size", "lost", "less", "without"),
    [
        ("dgx-h100", 2, 0.0, 0.0, 0.6),
        ("dgx-h100", 4, 0.0, 0.0, 0.25),
        ("dgx-1v", 2, 0.02, 0.02, 0.8),
        # Of four GPUs without a ring of NVLinks only the pairs differ: too many sets for a list.
        ("dgx-1v", 4, 0.0, 0.22, 0.85),
        ("rtxpro6000-pcie-8", 2, 0.0, 0.0, 0.8),
        ("rtxpro6000-pcie-8", 4, 0.0, 0.2, 0.75),
        ("h200-nvl-4", 2, 0.0, 0.0, 0.75),
        ("ac922", 2, 0.0, 0.0, 0.75),
    ],
)
def test_a_claim_gets_what_placement_would_choose_whatever_is_free(
    machine: str, size: int, lost: float, less: float, without: float
) -> None:
    snapshot = bundled.machine(machine)
    found = worse(snapshot, claim_spec(snapshot, size), size)
    assert found <= (lost, less)
    assert found[1] <= less
    assert worse(snapshot, any_gpus(size), size)[1] >= without


def test_one_alternative_stands_for_all_numa_nodes() -> None:
    layout = Layout(bundled.machine("dgx-h100"))
    *_, last_but_one, last = ranked(layout, 4)
    assert (last_but_one.among, last_but_one.match) == (layout.everyone, NUMA_NODE)
    assert (last.among, last.match) == (layout.everyone, None)


def test_small_jobs_share_a_numa_node_so_that_the_other_stays_whole() -> None:
    layout = Layout(bundled.machine("dgx-h100"))
    first, last = ranked(layout, 1)
    assert first.among in layout.shared[NUMA_NODE]
    assert last.among == layout.everyone


def test_the_list_is_the_same_each_time_and_no_longer_than_the_api_takes() -> None:
    for name in ("dgx-1v", "dgx-2", "rtxpro6000-pcie-8"):
        snapshot = bundled.machine(name)
        found = ranked(Layout(snapshot), 4)
        assert found == ranked(Layout(snapshot), 4)
        assert len(found) <= MOST


def test_lost_and_divided_gpus_are_in_no_alternative() -> None:
    snapshot = bundled.machine("dgx-h100")
    lost = replace(snapshot.gpus[0], is_lost=True)
    divided = replace(snapshot.gpus[5], mig=Mig(is_enabled=True))
    gpus = (lost, *snapshot.gpus[1:5], divided, *snapshot.gpus[6:])
    layout = Layout(replace(snapshot, gpus=gpus))
    assert layout.everyone == 0b11011110
    assert all(not each.among & ~layout.everyone for each in ranked(layout, 2))


def test_gpus_of_unknown_numa_node_are_not_matched_by_it() -> None:
    snapshot = bundled.machine("dgx-h100")
    gpus = (replace(snapshot.gpus[0], numa_node=None), *snapshot.gpus[1:])
    layout = Layout(replace(snapshot, gpus=gpus))
    assert NUMA_NODE not in layout.shared
    assert all(each.match != NUMA_NODE for each in ranked(layout, 2))


def test_a_plain_claim_has_an_attribute_only_where_it_helps() -> None:
    layout = Layout(bundled.machine("dgx-h100"))
    assert [plain(layout, size).match for size in (1, 2, 4, 8)] == [
        None,
        NUMA_NODE,
        NUMA_NODE,
        None,
    ]
    pairs = Layout(bundled.machine("rtxpro6000-pcie-8"))
    assert plain(pairs, 2).match == PCIE_ROOT
