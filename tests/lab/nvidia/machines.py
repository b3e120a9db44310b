"""What the two plugins are run on: machines of ``tests/nodes``, and layouts of MIG on one."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.model.gpu import Gpu, MigInstance
from tests.compose import h100_mig
from tests.compose.machine import Machine
from tests.compose.mig import H100_80, Profile, partitioned
from tests.compose.nvml import nvml_text

_NODES = Path(__file__).parents[2] / "nodes"
_MIG_SHAPE = "h100x8-nvswitch-2numa-mig"
_PROFILES: Mapping[str, Profile] = MappingProxyType(
    {**H100_80, "1g.10gb+me": Profile(20, 1, 1, 9984, 16, (1, 1, 0, 1, 1))}
)
"""Those that machines are composed of, and the one with all media engines (MIG User Guide)."""


class Layout(Struct, frozen=True, kw_only=True):
    """A machine: the files of *shape* below ``tests/nodes``, with *nvml* for its ``nvml.txt``."""

    shape: str
    nvml: str

    @property
    def files(self) -> Path:
        """The archive of its file system."""
        return _NODES / self.shape / "sysfs.txt"


def of_shape(shape: str) -> Layout:
    """Return a machine as it stands in ``tests/nodes``."""
    return Layout(shape=shape, nvml=(_NODES / shape / "nvml.txt").read_text("utf-8"))


def uniform() -> Layout:
    """Return eight H100 with two MIG devices of half a GPU each."""
    return _divided(lambda gpu: _with(gpu, [("3g.40gb", 4), ("3g.40gb", 0)]))


def uneven() -> Layout:
    """Return eight H100 in MIG mode whose devices are not of one profile."""
    return _divided(lambda gpu: _with(gpu, [("1g.10gb" if gpu.index else "3g.40gb", 0)]))


def parted() -> Layout:
    """Return H100 with the MIG devices that are hard to name, and no two GPUs alike.

    GPU0 has one with all media engines and one without; on GPU1 two compute instances share
    a GPU instance, and another fills its own. The rest are whole.
    """

    def divide(gpu: Gpu) -> Gpu:
        match gpu.index:
            case 0:
                return _with(gpu, [("1g.10gb+me", 0), ("1g.10gb", 1)])
            case 1:
                return _shared(_with(gpu, [("3g.40gb", 4), ("3g.40gb", 0)]))
        return replace(gpu, mig=None)

    return _divided(divide)


def _divided(divide: Callable[[Gpu], Gpu]) -> Layout:
    machine: Machine = h100_mig.machine()
    gpus = tuple(divide(gpu) for gpu in machine.snapshot.gpus)
    snapshot = replace(machine.snapshot, gpus=gpus, nvlinks=())
    return Layout(shape=_MIG_SHAPE, nvml=nvml_text(replace(machine, snapshot=snapshot)))


def _with(gpu: Gpu, places: list[tuple[str, int]]) -> Gpu:
    return partitioned(replace(gpu, remapped_rows=None), _PROFILES, places)


def _shared(gpu: Gpu) -> Gpu:
    """Return *gpu* with its first MIG device cut into two compute instances of one slice."""
    assert gpu.mig is not None
    first, *others = gpu.mig.instances
    return replace(gpu, mig=replace(gpu.mig, instances=(*_halves(first), *others)))


def _halves(one: MigInstance) -> Iterator[MigInstance]:
    assert one.attributes is not None
    attributes = replace(one.attributes, compute_instance_slices=1)
    for number in range(2):
        yield replace(
            one,
            uuid=f"{one.uuid[:-1]}{number + 10:x}",
            profile="1c.3g.40gb",
            compute_instance=number,
            attributes=attributes,
        )


def mig_minors() -> str:
    """Return ``/proc/driver/nvidia-caps/mig-minors``, the same on every machine.

    The driver counts through 32 GPUs with 15 GPU instances each, and 8 compute instances in
    each of those, from 3 on (NVIDIA MIG User Guide, "Device Nodes and Capabilities").
    """
    return "\n".join(_minor_lines()) + "\n"


def _minor_lines() -> Iterator[str]:
    yield "config 1"
    yield "monitor 2"
    number = 3
    for gpu in range(32):
        for instance in range(15):
            yield f"gpu{gpu}/gi{instance}/access {number}"
            for compute in range(8):
                yield f"gpu{gpu}/gi{instance}/ci{compute}/access {number + 1 + compute}"
            number += 9


MACHINES: Mapping[str, Callable[[], Layout]] = MappingProxyType(
    {
        "whole": partial(of_shape, "h100x8-nvswitch-2numa-8cx7"),
        "mig": partial(of_shape, _MIG_SHAPE),
        "uniform": uniform,
        "parted": parted,
        "broken": partial(of_shape, "h100x8-nvswitch-2numa-broken"),
        "gb200": partial(of_shape, "gb200x4-nvl72-34numa-4cx7"),
        "power9": partial(of_shape, "v100x4-power9-sparse-6mlx5"),
    }
)
"""By a short name."""
