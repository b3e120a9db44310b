"""How the GPUs are spread over NUMA nodes."""

import pytest
from msgspec import structs

from nodetopo.model.snapshot import Snapshot
from tests.components.labels.topology_machines import own, shape, with_gpu

DGX = "h100x8-nvswitch-2numa-8cx7"


def numa(snapshot: Snapshot) -> tuple[str | None, ...]:
    found = own(snapshot)
    return tuple(found.get(key) for key in ("numa-nodes", "gpu-numa-nodes", "gpus-per-numa"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (DGX, ("2", "2", "4-4")),
        ("a100x8-nvswitch-8numa-10cx6", ("8", "4", "0-2-0-2-0-2-0-2")),
        ("gb200x4-nvl72-34numa-4cx7", ("2", "2", "2-2")),
        ("v100x4-power9-sparse-6mlx5", ("2", "2", "2-2")),
        ("l4x1-1numa", ("1", "1", "1")),
        ("l4x10-pcie-1root-2switch", ("2", "1", "10-0")),
        ("h100x8-nvswitch-2numa-broken", ("2", None, "4-3-u1")),
        ("v100x8-vm-phb-2numa", ("2", None, "0-0-u8")),
    ],
)
def test_a_machine_is_spread_as_its_firmware_says(
    name: str,
    expected: tuple[str | None, ...],
) -> None:
    assert numa(shape(name)) == expected


def test_on_a_machine_of_one_node_a_gpu_can_be_nowhere_else() -> None:
    assert numa(with_gpu(shape("l4x1-1numa"), 0, numa_node=None)) == ("1", "1", "1")


def test_nodes_that_were_not_read_leave_all_open() -> None:
    assert numa(structs.replace(shape(DGX), numa_nodes=None)) == (None, None, None)
