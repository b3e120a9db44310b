"""The device nodes that open a MIG device: ``/dev/nvidia-caps/nvidia-capN``.

The driver numbers them for every GPU and instance that could exist and lists the numbers in
one file (NVIDIA MIG User Guide, "Device Nodes and Capabilities"), of which NVIDIA's device
plugin takes them as well (k8s-device-plugin v0.19.0, internal/mig/mig-dp.go).
"""

import re
from collections.abc import Mapping
from pathlib import Path

MINORS = Path("driver", "nvidia-caps", "mig-minors")
"""The file below ``/proc``; containers see the host's, whichever GPUs they were given."""

Minors = Mapping[tuple[int, int, int | None], int]
"""N by minor number of the GPU, id of the GPU instance, and id of the compute instance, which
is ``None`` for the node of the GPU instance itself."""

_LINE = re.compile(r"gpu([0-9]+)/gi([0-9]+)(?:/ci([0-9]+))?/access ([0-9]+)", re.ASCII)


def read_minors(procfs: Path) -> Minors:
    """Return the numbers that the driver lists; none where it has no such file."""
    try:
        text = (procfs / MINORS).read_text("ascii", errors="replace")
    except OSError:
        return {}  # no driver, or one without MIG
    found = (_LINE.fullmatch(line.strip()) for line in text.splitlines())
    return {
        (int(line[1]), int(line[2]), None if line[3] is None else int(line[3])): int(line[4])
        for line in found
        if line is not None
    }


def capabilities(
    minors: Minors,
    gpu: int | None,
    gpu_instance: int | None,
    compute_instance: int | None,
) -> tuple[int, ...] | None:
    """Return the two numbers of a MIG device; ``None`` where one is not known.

    *gpu* is the minor number of its GPU; the ids of the instances are NVML's.
    """
    if gpu is None or gpu_instance is None or compute_instance is None:
        return None
    instance = minors.get((gpu, gpu_instance, None))
    compute = minors.get((gpu, gpu_instance, compute_instance))
    return None if instance is None or compute is None else (instance, compute)
