"""What placement reads of a node: lanes as trained, and HCAs whose ports carry data."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.allocation.facts import facts
from nodetopo.machines.bundled import machine
from nodetopo.model.gpu import C2c
from nodetopo.model.hca import HcaPort
from nodetopo.model.nvlink import Closeness
from nodetopo.model.snapshot import Snapshot
from tests.strategies import node

PIX_OF_BOTH = {0: Closeness.PIX, 1: Closeness.PIX}


def with_widths(snapshot: Snapshot, widths: list[int | None]) -> Snapshot:
    gpus = []
    for gpu, width in zip(snapshot.gpus, widths, strict=True):
        assert gpu.pcie is not None
        gpus.append(replace(gpu, pcie=replace(gpu.pcie, width=width, max_width=16)))
    return replace(snapshot, gpus=tuple(gpus))


def with_ports(snapshot: Snapshot, *states: tuple[str | None, ...]) -> Snapshot:
    """Give the HCAs ports in *states*."""
    hcas = tuple(
        replace(hca, ports=tuple(HcaPort(number=n, state=state) for n, state in enumerate(own, 1)))
        for hca, own in zip(snapshot.hcas or (), states, strict=True)
    )
    return replace(snapshot, hcas=hcas)


def test_a_link_that_trained_to_fewer_lanes_counts_with_those() -> None:
    known = facts(with_widths(node(numa=[0, 0, 0]), [16, 16, 4]))
    assert (known.hops[0][1], known.hops[0][2], known.hops[1][2]) == (180, 60, 60)


def test_lanes_do_not_count_where_nvlink_joins_the_pair() -> None:
    known = facts(with_widths(node(numa=[0, 0], links={(0, 1): 2}), [16, 4]))
    assert known.hops[0][1] == 500


@pytest.mark.parametrize(
    ("widths", "hops"), [([None, None], 180), ([16, None], 180), ([4, None], 60), ([0, 16], 180)]
)
def test_an_unknown_width_counts_as_the_narrowest_of_the_node(
    widths: list[int | None], hops: int
) -> None:
    assert facts(with_widths(node(numa=[0, 0]), widths)).hops[0][1] == hops


def test_a_gpu_that_nvlink_joins_to_its_cpu_does_not_depend_on_its_lanes() -> None:
    narrow = with_widths(node(numa=[0, 0]), [2, 2])
    coherent = [replace(gpu, c2c=C2c(is_enabled=True)) for gpu in narrow.gpus]
    assert facts(narrow).hops[0][1] == 30
    assert facts(replace(narrow, gpus=tuple(coherent))).hops[0][1] == 180


@pytest.mark.parametrize("down", ["DOWN", "INIT", "ARMED"])
def test_an_hca_whose_ports_are_all_down_is_no_rail(down: str) -> None:
    two = node(numa=[0, 0], hcas=[PIX_OF_BOTH, PIX_OF_BOTH])
    assert facts(with_ports(two, ("ACTIVE",), ("ACTIVE",))).hcas == (0b11, 0b11)
    known = facts(with_ports(two, (down, down), ("ACTIVE",)))
    assert (known.hcas, known.hca_steps) == ((0b10, 0b10), (1, 1))


def test_an_hca_for_storage_takes_no_place_of_a_rail_that_is_down() -> None:
    two = node(numa=[0, 0], hcas=[PIX_OF_BOTH, {0: Closeness.NODE, 1: Closeness.NODE}])
    known = facts(with_ports(two, ("DOWN",), ("ACTIVE",)))
    assert (known.hcas, known.hca_steps) == ((0, 0), (0, 0))


@pytest.mark.parametrize("states", [("DOWN", "ACTIVE"), (None,), ()])
def test_an_hca_is_a_rail_while_a_port_is_or_may_be_up(states: tuple[str | None, ...]) -> None:
    one = node(numa=[0, 0], hcas=[PIX_OF_BOTH])
    assert facts(with_ports(one, states)).hcas == (0b1, 0b1)


def test_a_node_whose_hcas_are_all_down_is_as_one_without() -> None:
    one = node(numa=[0, 1], hcas=[PIX_OF_BOTH])
    without, down = facts(node(numa=[0, 1])), facts(with_ports(one, ("DOWN",)))
    assert (down.hca_steps, down.is_far, down.hcas) == (
        without.hca_steps,
        without.is_far,
        without.hcas,
    )


def test_the_reach_of_a_gpu_is_the_sum_of_its_hops() -> None:
    assert facts(node(numa=[0, 0, 1])).reach == (180 + 140, 180 + 140, 140 + 140)


@pytest.mark.parametrize(
    ("fact", "value", "models"),
    [
        ("product", "NVIDIA L4", (0, 0, 2, 0)),
        ("memory_mib", 23034, (0, 0, 2, 0)),
        ("compute_capability", (8, 9), (0, 0, 2, 0)),
        ("product", None, (0, 0, 0, 0)),
        ("memory_mib", None, (0, 0, 0, 0)),
        ("compute_capability", None, (0, 0, 0, 0)),
    ],
)
def test_gpus_differ_in_their_model_by_what_is_known_of_all(
    fact: str, value: object, models: tuple[int, ...]
) -> None:
    whole = machine("a100-pcie-4")
    changes: dict[str, Any] = {fact: value}
    gpus = tuple(replace(gpu, **changes) if gpu.index == 2 else gpu for gpu in whole.gpus)
    assert facts(replace(whole, gpus=gpus)).models == models
