"""Settings: when a GPU is unhealthy, and when it is well again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.config import values
from agent.config.option import option, switch
from agent.config.xid_classes import XidClasses, xid_classes
from agent.health.status import HealthClass


@dataclass(frozen=True, kw_only=True)
class HealthSettings:
    """What is watched and what it means."""

    health_checks: bool = field(
        default=True,
        metadata=switch("let errors that GPUs report make them Unhealthy"),
    )
    xid_classes: Mapping[int, HealthClass] = field(
        default=XidClasses(),
        metadata=option(
            xid_classes,
            f"XID=CLASS or FROM-TO=CLASS by comma, over the usual: {', '.join(HealthClass)}",
            "LIST",
        ),
    )
    recovery_s: float = field(
        default=60.0,
        metadata=option(
            values.duration, "how long a repaired GPU must stay well before it is Healthy", "TIME"
        ),
    )
    health_file: Path | None = field(
        default=Path("/run/nodetopo/health.json"),  # of /run, which a boot empties
        metadata=option(
            values.path_or_none,
            "where the health of GPUs outlives the daemon; `none` for none",
            "FILE",
        ),
    )
    kernel_log: Path | None = field(
        default=None,
        metadata=option(
            values.path_or_none, "also read XIDs from this kernel log, such as /dev/kmsg", "FILE"
        ),
    )
