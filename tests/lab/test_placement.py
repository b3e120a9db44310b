"""Whole GPUs under every Topology Manager policy and scope: the real kubelet takes our sets."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import product

import pytest

from nodetopo.machines.bundled import machine
from tests.lab.cluster import Cluster
from tests.lab.grpc_proxy import Tap
from tests.lab.kubelet import Policies
from tests.lab.machine_node import Node
from tests.lab.placement import DAY, SURPLUS, Turn, expected
from tests.lab.placement_scenarios import Player

pytestmark = pytest.mark.lab

Cell = tuple[str, str, str]
"""Machine, policy, scope."""
Day = tuple[Turn, ...]
_SHAPES = {"dgx-h100": "h100x8-nvswitch-2numa-8cx7", "dgx-1v": "v100x8-cubemesh-2numa-4cx4"}
_POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
_SCOPES = ("container", "pod")
_CELLS: tuple[Cell, ...] = (
    *product(("dgx-h100",), _POLICIES, _SCOPES),
    *product(("dgx-1v",), ("none",), _SCOPES),
)
_TOO_WIDE = {
    ("restricted", "container"): ("across",),
    ("restricted", "pod"): ("across", "team", "pair"),
    ("single-numa-node", "container"): ("across", "wide"),
    ("single-numa-node", "pod"): ("across", "team", "wide", "pair"),
}
"""The jobs that each policy rejects. ``wide`` is on two nodes wherever it runs, which is what
``restricted`` asks of it."""


@pytest.fixture(scope="module")
def days(cluster: Cluster) -> Iterator[Mapping[Cell, Future[Day]]]:
    """Play the day in each cell, on nodes of their own and at once.

    One by one they would take minutes, nearly all of it waiting.
    """
    with ExitStack() as stack:
        cells = {_node_name(cell): cell for cell in _CELLS}
        wanted = {
            name: (_SHAPES[shape], Policies(topology=policy, scope=scope))
            for name, (shape, policy, scope) in cells.items()
        }
        for name in cells:
            stack.callback(cluster.remove_node, name)
        nodes = cluster.add_nodes(wanted)
        taps = {node.name: stack.enter_context(closing(_tap(node))) for node in nodes}
        pool = stack.enter_context(ThreadPoolExecutor(len(nodes)))
        yield {
            cells[node.name]: pool.submit(
                Player(cluster.pods, node, taps[node.name], cells[node.name][0]).play
            )
            for node in nodes
        }


@pytest.fixture
def day(days: Mapping[Cell, Future[Day]], cell: Cell) -> Day:
    """Return what became of the jobs, in their order."""
    return days[cell].result()


every_cell = pytest.mark.parametrize("cell", _CELLS, ids="/".join)


@every_cell
def test_each_container_gets_the_best_set_of_what_the_kubelet_leaves_to_choose(
    day: Day, cell: Cell
) -> None:
    assert day[: len(DAY)] == expected(*cell)


@every_cell
def test_the_gpu_of_an_init_container_comes_back_as_must_include_and_is_kept(day: Day) -> None:
    warm = _turn(day, "warm")

    before, after = warm.offers
    assert (before.answer, warm.given) == (after.required, (after.answer,))
    assert set(after.required) < set(after.answer)


@every_cell
def test_a_container_that_needs_less_than_its_init_container_had_gets_a_part_of_that(
    day: Day,
) -> None:
    surplus = _turn(day, SURPLUS.name)

    (before,) = surplus.offers
    ((given,),) = surplus.given
    assert given in before.answer


@pytest.mark.parametrize(
    "cell", [cell for cell in _CELLS if cell[1] != "none" and cell[2] == "pod"], ids="/".join
)
def test_all_containers_of_a_pod_that_fits_one_numa_node_are_on_it_under_scope_pod(
    day: Day, cell: Cell
) -> None:
    numa = {gpu.index: gpu.numa_node for gpu in machine(cell[0]).gpus}
    first, second = _turn(day, "crew").given

    assert {numa[gpu] for gpu in first + second} == {1}


@every_cell
def test_what_cannot_be_aligned_is_rejected_and_nothing_else(day: Day, cell: Cell) -> None:
    _, policy, scope = cell

    rejected = {turn.job: turn.rejected for turn in day if turn.rejected}
    assert rejected == dict.fromkeys(_TOO_WIDE.get((policy, scope), ()), "TopologyAffinityError")


def _turn(day: Day, job: str) -> Turn:
    (found,) = (turn for turn in day if turn.job == job)
    return found


def _node_name(cell: Cell) -> str:
    """Return a short name: sockets lie below the node's directory, and paths to them are capped."""
    name, policy, scope = cell
    return f"{name}-{''.join(word[0] for word in policy.split('-'))}-{scope}"


def _tap(node: Node) -> Tap:
    """Start the agent of *node* with a tap between it and the kubelet."""
    tap = Tap(agent_side=node.host.parent / "tap", kubelet_side=node.agent.socket_dir)
    node.agent.start(["--device-plugin-dir", str(node.host.parent / "tap")])
    return tap
