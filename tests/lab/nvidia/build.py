"""NVIDIA's device plugin and GPU Feature Discovery at the version that go.mod pins, v0.19.0.

Nothing of theirs is in this repository: the module proxy has it. It binds NVML through cgo;
NVML itself is looked up when the program starts.
"""

from functools import cache
from pathlib import Path

from tests.lab.go_program import GoPrograms

PLUGIN = "nvidia-device-plugin"
DISCOVERY = "gpu-feature-discovery"
_COMMANDS = "github.com/NVIDIA/k8s-device-plugin/cmd"


@cache
def programs() -> Path:
    """Return the folder of the programs, building them if they are not there; minutes cold.

    Raises:
        RuntimeError: as :meth:`GoPrograms.folder` does.
    """
    return GoPrograms(
        shelf="lab",
        title=PLUGIN,
        module=Path(__file__).parent,
        packages={name: f"{_COMMANDS}/{name}" for name in (PLUGIN, DISCOVERY)},
        has_c=True,
    ).folder()
