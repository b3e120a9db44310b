"""Rails where a node shows them, and groups where it does not."""

from msgspec.structs import replace

from nodetopo.machines.bundled import machine
from nodetopo.model.hca import DataDirect
from nodetopo.model.nvlink import Closeness
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.affinity import rails
from tests.strategies import node
from tests.topology.trees import gpu, hca, path

PIX, PXB, NODE, SYS = Closeness.PIX, Closeness.PXB, Closeness.NODE, Closeness.SYS
Found = tuple[int | None, tuple[int, ...], list[str], str]


def told(snapshot: Snapshot) -> list[Found]:
    """Number, GPUs, HCAs and closeness of each rail; a number says that it is certain."""
    found = rails(snapshot)
    assert all(rail.is_certain == (rail.number is not None) for rail in found)
    return [
        (rail.number, rail.gpus, [hca.name for hca in rail.hcas], rail.closeness.name)
        for rail in found
    ]


def test_one_hca_for_each_gpu_is_a_rail_each() -> None:
    assert told(machine("dgx-h100")) == [(at, (at,), [f"mlx5_{at}"], "PXB") for at in range(8)]


def test_rails_go_by_gpu_and_not_by_hca() -> None:
    shuffled = [{0: NODE, 1: PIX}, {0: PIX, 1: NODE}]
    assert told(node(numa=[0, 0], hcas=shuffled)) == [
        (0, (0,), ["mlx5_1"], "PIX"),
        (1, (1,), ["mlx5_0"], "PIX"),
    ]


def test_an_hca_shared_by_two_gpus_is_a_group() -> None:
    assert told(machine("dgx-1v")) == [
        (None, (2 * at, 2 * at + 1), [f"mlx5_{at}"], "PIX") for at in range(4)
    ]


def test_two_hcas_equally_near_are_a_group() -> None:
    assert told(node(numa=[0], hcas=[{0: PIX}, {0: PIX}, {0: NODE}])) == [
        (None, (0,), ["mlx5_0", "mlx5_1"], "PIX")
    ]


def test_an_hca_that_is_nearest_to_no_gpu_is_on_no_rail() -> None:
    storage = {0: NODE, 1: NODE}
    near = [{0: PIX, 1: NODE}, storage, {0: NODE, 1: PIX}]
    assert told(node(numa=[0, 0], hcas=near)) == [
        (0, (0,), ["mlx5_0"], "PIX"),
        (1, (1,), ["mlx5_2"], "PIX"),
    ]


def test_a_gpu_whose_hcas_are_all_nearer_to_others_is_on_no_rail() -> None:
    near = [{0: PIX, 1: NODE, 2: NODE}, {0: NODE, 1: NODE, 2: PIX}]
    assert told(node(numa=[0, 0, 0], hcas=near)) == [
        (0, (0,), ["mlx5_0"], "PIX"),
        (1, (2,), ["mlx5_1"], "PIX"),
    ]


def test_groups_take_a_number_that_no_rail_gets() -> None:
    near = [{0: PIX, 1: PIX, 2: SYS}, {0: SYS, 1: SYS, 2: PXB}]
    assert told(node(numa=[0, 0, 1], hcas=near)) == [
        (None, (0, 1), ["mlx5_0"], "PIX"),
        (1, (2,), ["mlx5_1"], "PXB"),
    ]


def test_an_unknown_distance_that_may_be_nearer_leaves_no_rail_certain() -> None:
    assert told(node(numa=[0, 0], hcas=[{0: PIX}, {0: NODE, 1: PIX}])) == [
        (None, (0,), ["mlx5_0"], "PIX"),
        (None, (1,), ["mlx5_1"], "PIX"),
    ]


def test_an_unknown_distance_between_placed_devices_is_not_nearer_than_a_switch() -> None:
    """Below one node of an NCCL XML that names no host bridge: PHB or NODE, never PIX."""
    plain = Snapshot(
        gpus=(gpu(0, 2, 8), gpu(1, 12, 18)),
        hcas=(hca("mlx5_0", 2, 9), hca("mlx5_1", 12, 19)),
    )
    found = Snapshot(
        gpus=tuple(
            replace(one, path=one.path and replace(one.path, root=None, is_collapsed=True))
            for one in plain.gpus
        ),
        hcas=tuple(
            replace(one, path=one.path and replace(one.path, root=None, is_collapsed=True))
            for one in plain.hcas or ()
        ),
    )
    assert told(found) == [(0, (0,), ["mlx5_0"], "PIX"), (1, (1,), ["mlx5_1"], "PIX")]


def test_a_data_direct_function_decides_for_its_hca() -> None:
    found = Snapshot(
        gpus=(gpu(0, 1, 2, 3, 8), gpu(1, 11, 18)),
        hcas=(hca("mlx5_0", 12, 19), hca("mlx5_1", 13, 20)),
        data_directs=(DataDirect(path=path(1, 2, 4, 30), numa_node=0, hcas=("mlx5_0",)),),
    )
    assert told(found) == [
        (0, (0,), ["mlx5_0"], "PIX"),
        (1, (1,), ["mlx5_1"], "PHB"),
    ]


def test_without_hcas_there_are_no_rails() -> None:
    assert told(node(numa=[0, 0])) == []
