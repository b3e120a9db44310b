"""Settings: what a container is given with its devices."""

from dataclasses import dataclass, field
from pathlib import Path

from agent.config import values
from agent.config.option import choice, option, switch
from agent.deviceplugin.settings import Strategy

CDI_SPEC_WORDS = ("none", "write")
"""Whether the daemon writes a CDI specification; without, another program must."""


@dataclass(frozen=True, kw_only=True)
class HandoverSettings:
    """The answer to Allocate, and the CDI specification behind it."""

    device_list_strategy: tuple[str, ...] = field(
        default=("cdi-cri",),
        metadata=option(
            values.several_of(tuple(word.value for word in Strategy)),
            f"how devices reach a container, several by comma: {', '.join(Strategy)}",
            "LIST",
            is_live=True,
        ),
    )
    driver_root: Path = field(
        default=Path("/"),
        metadata=option(
            values.absolute_path,
            "directory of the driver's files, on the host",
            "DIR",
            is_live=True,
        ),
    )
    dev_root: Path = field(
        default=Path("/"),
        metadata=option(
            values.absolute_path,
            "directory around the dev/ of device nodes, on the host; default driver-root",
            "DIR",
            is_live=True,
        ),
    )
    cdi_kind: str = field(
        default="nvidia.com/gpu",  # what nvidia-ctk writes into /var/run/cdi
        metadata=option(values.resource, "vendor/class of the CDI devices", "NAME", is_live=True),
    )
    cdi_annotation_prefix: str = field(
        default="cdi.k8s.io/",  # the only one that container runtimes read by default
        metadata=option(
            values.annotation_prefix,
            "how the keys of cdi-annotations begin",
            "TEXT",
            is_live=True,
        ),
    )
    cdi_spec: str = field(
        default="none",
        metadata=choice(
            "whether the daemon writes the CDI specification", *CDI_SPEC_WORDS, is_live=True
        ),
    )
    cdi_spec_dir: Path = field(
        default=Path("/var/run/cdi"),  # CDI 1.0, where specifications of a running system are
        metadata=option(values.absolute_path, "where that specification is written", "DIR"),
    )
    cdi_hook: Path = field(
        default=Path("/usr/bin/nvidia-cdi-hook"),
        metadata=option(
            values.absolute_path, "program that its hooks call, on the host", "PATH", is_live=True
        ),
    )
    imex_channels: tuple[int, ...] = field(
        default=(),
        metadata=option(
            values.imex_channels,
            "IMEX channels of every container: none, or 0",
            "LIST",
            is_live=True,
        ),
    )
    imex_required: bool = field(
        default=False,
        metadata=switch("do not start where a channel is missing", is_live=True),
    )
    gdrcopy: bool = field(
        default=False,
        metadata=switch("start containers with GDRCopy", is_live=True),
    )
    gds: bool = field(
        default=False,
        metadata=switch("start containers with GPUDirect Storage", is_live=True),
    )
    mofed: bool = field(
        default=False,
        metadata=switch("start containers with Mellanox OFED", is_live=True),
    )
    nccl_hints: bool = field(
        default=False,
        metadata=switch("mount the PCI tree for NCCL into containers"),
    )
    nccl_hints_dir: Path = field(
        default=Path("/run/nodetopo/nccl"),
        metadata=option(values.absolute_path, "where that file is, on the host", "DIR"),
    )
