"""The HCAs that NCCL would choose for each GPU, and the distances that Data Direct changes."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.machines.bundled import machine
from nodetopo.model.codec import decode
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import DataDirect, Hca
from nodetopo.model.nvlink import Closeness, NvLink, PeerKind, ReportedPair
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.affinity import nccl_nearest_hcas
from nodetopo.nccl.routes import is_power_of_two, mirrored
from nodetopo.topology.affinity import hca_closeness, nearest_hcas, nodes_alike
from tests.topology.trees import gpu, hca

NODES = Path(__file__).parents[1] / "nodes"


def switch(gpus: int, nics: int) -> Snapshot:
    """GPUs and HCAs below one switch, each at a downstream port."""
    return Snapshot(
        gpus=tuple(gpu(at, 1, 2, 40 + at, 80 + at) for at in range(gpus)),
        hcas=tuple(hca(f"mlx5_{at}", 1, 2, 60 + at, 100 + at) for at in range(nics)),
        nvlinks=(),
    )


def chosen(snapshot: Snapshot) -> list[list[int]]:
    """The HCAs of each GPU, that of channel 0 first, by the number in their names."""
    return [
        [int(hca.name.removeprefix("mlx5_")) for net in found.nets for hca in net.hcas]
        for found in nccl_nearest_hcas(snapshot).values()
    ]


@pytest.mark.parametrize(
    ("gpus", "nics", "expected"),
    [
        (1, 1, [[0]]),
        (2, 1, [[0], [0]]),
        (1, 2, [[0, 1]]),
        # a power of two of devices: the start is mirrored, 1 of 4 becomes 2
        (2, 4, [[0, 1], [2, 3]]),
        (4, 2, [[0], [1], [0], [1]]),
        (4, 4, [[0], [2], [1], [3]]),
        # else it is not, and shares overlap where they do not divide
        (2, 3, [[0, 1], [1, 2]]),
        (3, 5, [[0, 1], [1, 2], [2, 3]]),
    ],
)
def test_near_devices_are_divided_among_the_gpus_near_to_them(
    gpus: int,
    nics: int,
    expected: list[list[int]],
) -> None:
    assert chosen(switch(gpus, nics)) == expected


def test_the_start_is_by_nvml_index_and_not_by_place() -> None:
    plain = switch(2, 2)
    renumbered = tuple(replace(one, index=one.index + 3) for one in plain.gpus)
    assert chosen(replace(plain, gpus=renumbered)) == [[1], [0]]


@pytest.mark.parametrize(
    ("value", "power", "expected"),
    [(0, 1, 0), (1, 2, 1), (1, 4, 2), (2, 4, 1), (3, 8, 6), (4, 8, 1), (5, 4, 2), (7, 1, 0)],
)
def test_bits_are_mirrored_and_those_too_high_cut(value: int, power: int, expected: int) -> None:
    assert mirrored(value, power) == expected


def test_powers_of_two() -> None:
    assert [count for count in range(1, 17) if is_power_of_two(count)] == [1, 2, 4, 8, 16]


def test_the_wider_path_wins_over_the_nearer() -> None:
    """A 400 Gb/s HCA past the CPU over one of 100 Gb/s below the GPU's own switch."""
    near, far = hca("mlx5_0", 1, 2, 4, 9, rates=(100.0,)), hca("mlx5_1", 11, 19)
    found = nccl_nearest_hcas(
        Snapshot(gpus=(gpu(0, 1, 2, 3, 8),), hcas=(near, far), nvlinks=()),
    )[0]
    assert [net.hcas for net in found.nets] == [(far,)]
    assert found.type.name == "PHB"
    assert found.bandwidth_gbs is None  # nobody looked at the switch's link to the CPU


def test_of_equally_wide_paths_the_nearer_wins() -> None:
    near, far = hca("mlx5_0", 1, 2, 4, 9), hca("mlx5_1", 11, 19)
    snapshot = Snapshot(gpus=(gpu(0, 1, 2, 3, 8),), hcas=(near, far), nvlinks=())
    assert chosen(snapshot) == [[0]]


def test_rates_of_which_some_are_unknown_cannot_be_compared() -> None:
    mixed = switch(1, 2)
    assert mixed.hcas is not None
    hcas = (mixed.hcas[0], replace(mixed.hcas[1], ports=()))
    assert nccl_nearest_hcas(replace(mixed, hcas=hcas)) == {}
    all_unknown = tuple(replace(one, ports=()) for one in mixed.hcas)
    found = nccl_nearest_hcas(replace(mixed, hcas=all_unknown))[0]
    assert (found.bandwidth_gbs, len(found.nets)) == (None, 2)


def test_a_gpu_without_a_near_hca_uses_the_gpus_that_have_one() -> None:
    """Both HCAs are as good through their GPUs, so the third GPU has both for candidates."""
    gpus = (gpu(0, 1, 2, 3, 8), gpu(1, 11, 12, 13, 18), gpu(2, 21, 28))
    links = tuple(
        NvLink(gpu=one.index, link=at, is_active=True, peer_kind=PeerKind.SWITCH)
        for one in gpus
        for at in range(18)
    )
    nics = (hca("mlx5_0", 1, 2, 4, 9), hca("mlx5_1", 11, 12, 14, 19))
    found = nccl_nearest_hcas(Snapshot(gpus=gpus, hcas=nics, nvlinks=links))
    assert [(found[at].type.name, len(found[at].candidates)) for at in range(3)] == [
        ("PIX", 1),
        ("PIX", 1),
        ("PXN", 2),
    ]


def test_each_gpu_of_the_h100_machine_uses_its_own_hca() -> None:
    found = nccl_nearest_hcas(machine("dgx-h100"))
    assert [[hca.name for net in found[at].nets for hca in net.hcas] for at in range(8)] == [
        [f"mlx5_{at}"] for at in range(8)
    ]


def test_without_knowledge_of_nvlinks_only_near_hcas_are_chosen() -> None:
    plain = replace(switch(1, 1), nvlinks=None)
    far = gpu(1, 31, 38)
    assert list(nccl_nearest_hcas(replace(plain, gpus=(*plain.gpus, far)))) == [0]


def test_a_data_direct_function_brings_its_hcas_nearer() -> None:
    """As on a DGX Station GB300: the HCAs' own rows say SYS, DD0 says PXB to GPU1."""
    rows = {("GPU0", "NIC0"): "SYS", ("GPU1", "NIC0"): "SYS", ("GPU0", "DD0"): "SYS"}
    rows[("GPU1", "DD0")] = "PXB"
    rows[("GPU1", "NIC1")] = "NODE"
    station = Snapshot(
        gpus=(Gpu(index=0), Gpu(index=1)),
        hcas=(Hca(name="mlx5_0"), Hca(name="mlx5_1")),
        data_directs=(DataDirect(hcas=("mlx5_0",)),),
        pairs=tuple(
            ReportedPair(a=a, b=b, closeness=Closeness[word]) for (a, b), word in rows.items()
        ),
    )
    assert hca_closeness(station) == {
        (0, 0): Closeness.SYS,
        (1, 0): Closeness.PXB,
        (1, 1): Closeness.NODE,
    }
    nearest = nearest_hcas(station)
    assert [[hca.name for hca in nearest[at].hcas] for at in (0, 1)] == [["mlx5_0"], ["mlx5_0"]]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("a100x4-snc2-4numa", {0: (1,), 1: (0,), 2: (3,), 3: (2,)}),
        ("h100x8-nvswitch-2numa-8cx7", {0: (), 1: ()}),
        ("gb300x2-station-1grace-datadirect", {0: (1, 2, 3, 4, 5, 6, 7, 8), 1: (0,)}),
    ],
)
def test_nodes_alike_are_the_nearest_of_the_same_socket(
    shape: str, expected: dict[int, tuple[int, ...]]
) -> None:
    text = (NODES / shape / "snapshot.json").read_text("utf-8")
    found = nodes_alike(decode(text).snapshot)
    assert {node: found[node] for node in expected} == expected


def test_nodes_of_unknown_distances_have_none_alike() -> None:
    snapshot = machine("dgx-h100")
    nodes = tuple(replace(node, distances=None) for node in snapshot.numa_nodes or ())
    assert nodes_alike(replace(snapshot, numa_nodes=nodes)) == {}
