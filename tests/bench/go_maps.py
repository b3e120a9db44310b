"""Lists of free devices from Go's own maps: a small program, compiled once and kept."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.lab.go_program import GoPrograms

_NAME = "map_order"


def go_lists(devices: int, free: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """Return *count* lists of *free*, of a node of *devices*, each from new maps.

    Raises:
        RuntimeError: the program does not compile, or there is no Go and none can be fetched.
    """
    programs = GoPrograms(
        shelf="bench",
        title="map_order",
        module=Path(__file__).parent / _NAME,
        packages={_NAME: "."},
    )
    numbers = [str(number) for number in (devices, count, *free)]
    lines = subprocess.run(
        [programs.folder() / _NAME, *numbers], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [tuple(json.loads(line)) for line in lines]
