"""Machines and configurations on which GFD's labels and ours are held against each other."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

import yaml
from msgspec import Struct, field
from msgspec.structs import replace

from nodetopo.components.labels.rules import LabelRules, MigLabelling, SharedLabel
from tests.lab.nvidia.machines import Layout, of_shape, parted, uneven, uniform

_NODES = Path(__file__).parents[2] / "nodes"
GPU = "nvidia.com/gpu"
_HEADER_BYTES = 64


def _as_it_is(host: Path) -> None:
    del host


class Case(Struct, frozen=True, kw_only=True):
    """One configuration on one machine.

    Attributes:
        mig: ``flags.migStrategy``.
        replicas: ``sharing.timeSlicing.resources``.
        is_renamed: ``sharing.timeSlicing.renameByDefault``.
        faults: what the NVML library does wrong.
        edit: changes the machine's files, given their root.
    """

    layout: Callable[[], Layout]
    mig: MigLabelling = "none"
    replicas: Mapping[str, int] = field(default_factory=dict)
    is_renamed: bool = False
    faults: Sequence[str] = ()
    edit: Callable[[Path], None] = _as_it_is

    @property
    def config(self) -> str:
        """The file, as an operator would write it for NVIDIA's programs."""
        resources = [{"name": name, "replicas": count} for name, count in self.replicas.items()]
        slicing = {"renameByDefault": self.is_renamed, "resources": resources}
        sharing = {"sharing": {"timeSlicing": slicing}} if resources else {}
        return yaml.safe_dump({"version": "v1", "flags": {"migStrategy": self.mig}, **sharing})

    @property
    def rules(self) -> LabelRules:
        """The same for ours."""
        shared = {
            name: SharedLabel(replicas=count, is_renamed=self.is_renamed)
            for name, count in self.replicas.items()
        }
        return LabelRules(mig=self.mig, shared=shared)


_H100 = "h100x8-nvswitch-2numa-8cx7"
_MIG = "h100x8-nvswitch-2numa-mig"
_GB200 = "gb200x4-nvl72-34numa-4cx7"
_VM = "h100x8-vm-2numa-8vf"
_ONE = "nvidia.com/mig-1g.10gb"


def _saying(shape: str, question: str, answer: str) -> Callable[[], Layout]:
    """Return the machine of *shape* whose NVML gives *answer* to *question*, a pattern."""

    def layout() -> Layout:
        known = of_shape(shape)
        nvml, count = re.subn(f"(?m)^({question}) = 0 .*$", rf"\1 = 0 {answer}", known.nvml)
        assert count, f"{shape} is never asked {question}"
        return replace(known, nvml=nvml)

    return layout


def _named(name: str) -> Callable[[Path], None]:
    """Return an edit that gives the machine *name*, as its firmware would."""

    def edit(host: Path) -> None:
        (host / "sys/class/dmi/id/product_name").write_text(f"{name}\n", "ascii")

    return edit


def _nameless(host: Path) -> None:
    (host / "sys/class/dmi/id/product_name").unlink()


def _gpu_configs(host: Path) -> Sequence[Path]:
    functions = (host / "sys/bus/pci/devices").iterdir()
    return [
        one / "config" for one in functions if (one / "class").read_text("ascii")[2:6] == "0302"
    ]


def _unprivileged(host: Path) -> None:
    """Leave of config space what a reader without CAP_SYS_ADMIN is given."""
    for config in _gpu_configs(host):
        config.write_bytes(config.read_bytes()[:_HEADER_BYTES])


def _virtual(host: Path) -> None:
    """Give each GPU what the host's driver adds to a vGPU (k8s-device-plugin, internal/vgpu)."""
    texts = b"".join(text.ljust(10, b"\0") for text in (b"580.95.02", b"r580_95"))
    other, driver = bytes([7, 4, 1, 2]), bytes([0, 2 + len(texts)]) + texts
    body = b"VF" + other + driver
    for config in _gpu_configs(host):
        space = bytearray(config.read_bytes())
        space[0x34] = 0xA0  # where the list of capabilities begins
        space[0xA0 : 0xA0 + 3 + len(body)] = bytes([0x09, 0x40, 3 + len(body)]) + body
        config.write_bytes(space)


_CLUSTER = "6b0e1b2c-0000-4000-8000-000000000072"
_ZEROS = "00000000-0000-0000-0000-000000000000"
_DRIVER = "nvmlSystemGetDriverVersion"
_FABRIC = r"nvmlDeviceGetGpuFabricInfoV \d"
_FABRIC_OF_THREE = "nvmlDeviceGetGpuFabricInfoV 3"
_SHAPES = {path.name: Case(layout=partial(of_shape, path.name)) for path in _NODES.iterdir()}

_PARTITIONED = {
    "whole, single": Case(layout=partial(of_shape, _H100), mig="single"),
    "whole, mixed": Case(layout=partial(of_shape, _H100), mig="mixed"),
    "partly, single": Case(layout=partial(of_shape, _MIG), mig="single"),
    "partly, mixed": Case(layout=partial(of_shape, _MIG), mig="mixed"),
    "uniform, none": Case(layout=uniform),
    "uniform, single": Case(layout=uniform, mig="single"),
    "uniform, mixed": Case(layout=uniform, mig="mixed"),
    "uneven, single": Case(layout=uneven, mig="single"),
    "uneven, mixed": Case(layout=uneven, mig="mixed"),
    "parted, single": Case(layout=parted, mig="single"),
    "parted, mixed": Case(layout=parted, mig="mixed"),
}
_SHARED = {
    "replicas": Case(layout=partial(of_shape, _H100), replicas={GPU: 2}),
    "renamed": Case(layout=partial(of_shape, _H100), replicas={GPU: 4}, is_renamed=True),
    "other resource": Case(layout=partial(of_shape, _H100), replicas={_ONE: 4}),
    "partly, replicas": Case(layout=partial(of_shape, _MIG), replicas={GPU: 3}),
    "uniform, replicas": Case(layout=uniform, replicas={GPU: 3}),
    "uniform, single, replicas": Case(layout=uniform, mig="single", replicas={GPU: 4}),
    "uniform, single, renamed": Case(
        layout=uniform, mig="single", replicas={GPU: 4}, is_renamed=True
    ),
    "partly, single, replicas": Case(
        layout=partial(of_shape, _MIG), mig="single", replicas={GPU: 4}
    ),
    "partly, mixed, replicas": Case(
        layout=partial(of_shape, _MIG), mig="mixed", replicas={GPU: 2, _ONE: 3}
    ),
    "partly, mixed, renamed": Case(
        layout=partial(of_shape, _MIG), mig="mixed", replicas={_ONE: 2}, is_renamed=True
    ),
}
_ODD = {
    "no GPU": Case(layout=_saying(_H100, "nvmlDeviceGetCount_v2", "0")),
    "driver of two parts": Case(layout=_saying(_H100, _DRIVER, "580.95")),
    "driver of four parts": Case(layout=_saying(_H100, _DRIVER, "580.95.05.1")),
    "newer than GFD": Case(
        layout=_saying(_H100, r"nvmlDeviceGetCudaComputeCapability \d", "13 | 0")
    ),
    "display": Case(layout=_saying(_H100, "nvmlDeviceGetName 0", "NVIDIA DGX Display")),
    "no name": Case(layout=partial(of_shape, _H100), edit=_nameless),
    "name of nobody": Case(layout=partial(of_shape, _H100), edit=_named("To be filled by O.E.M.")),
    "long name": Case(layout=partial(of_shape, _H100), edit=_named("ProLiant " * 8)),
    "lost": Case(layout=partial(of_shape, _H100), faults=["lost 5"]),
    "memory unread": Case(
        layout=partial(of_shape, _H100), faults=["code nvmlDeviceGetMemoryInfo 999"]
    ),
    "fabric in progress": Case(
        layout=_saying(_GB200, _FABRIC_OF_THREE, f"2 | 0 | {_CLUSTER} | 2 | 170")
    ),
    "two cliques": Case(layout=_saying(_GB200, _FABRIC_OF_THREE, f"3 | 0 | {_CLUSTER} | 1 | 170")),
    "board with a cluster": Case(layout=_saying(_H100, _FABRIC, f"3 | 0 | {_CLUSTER} | 1 | 0")),
    "cluster of zeros": Case(layout=_saying(_GB200, _FABRIC, f"3 | 0 | {_ZEROS} | 1 | 0")),
    "zeros beside a cluster": Case(
        layout=_saying(_GB200, _FABRIC_OF_THREE, f"3 | 0 | {_ZEROS} | 2 | 0")
    ),
    "vGPU by its mode": Case(layout=_saying(_VM, r"nvmlDeviceGetVirtualizationMode \d", "2")),
    "vGPU": Case(layout=_saying(_VM, r"nvmlDeviceGetVirtualizationMode \d", "2"), edit=_virtual),
    "unprivileged": Case(layout=partial(of_shape, _H100), edit=_unprivileged),
}

CASES: Mapping[str, Case] = MappingProxyType({**_SHAPES, **_PARTITIONED, **_SHARED, **_ODD})
"""By the machine in ``tests/nodes``, or what is special about it and how it is configured."""
