from pathlib import Path

import pytest

from nodetopo.deviceplugin.devices import MINORS, capabilities, read_minors

# Lines as the MIG User Guide shows them, "Device Nodes and Capabilities".
LISTED = """config 1
monitor 2
gpu0/gi0/access 3
gpu0/gi0/ci0/access 4
gpu0/gi0/ci1/access 5
gpu1/gi13/access 152
gpu1/gi13/ci0/access 153
not a line of the driver's
"""
FOUND = {
    (0, 0, None): 3,
    (0, 0, 0): 4,
    (0, 0, 1): 5,
    (1, 13, None): 152,
    (1, 13, 0): 153,
}


def test_the_numbers_of_instances_are_read_and_other_lines_are_not(tmp_path: Path) -> None:
    (tmp_path / MINORS).parent.mkdir(parents=True)
    (tmp_path / MINORS).write_text(LISTED)
    assert read_minors(tmp_path) == FOUND


def test_a_node_without_mig_lists_none(tmp_path: Path) -> None:
    assert read_minors(tmp_path) == {}


@pytest.mark.parametrize(
    ("device", "numbers"),
    [
        ((1, 13, 0), (152, 153)),
        ((0, 0, 1), (3, 5)),
        ((0, 0, 2), None),  # the compute instance is not listed
        ((1, 0, 0), None),
        ((None, 13, 0), None),
        ((1, None, 0), None),
        ((1, 13, None), None),
    ],
)
def test_a_mig_device_needs_its_gpu_instance_and_its_compute_instance(
    device: tuple[int | None, int | None, int | None], numbers: tuple[int, int] | None
) -> None:
    assert capabilities(FOUND, *device) == numbers
