"""Settings: which machine is read, how, and what is said about it."""

from dataclasses import dataclass, field
from pathlib import Path

from agent.config import values
from agent.config.option import choice, option, switch


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """The machine, the way to its hardware, and the log."""

    node_name: str = field(
        metadata=option(
            values.text, "name of the Node object; default $NODE_NAME, else host", "NAME"
        ),
    )
    machine: str | None = field(
        default=None,
        metadata=option(
            values.text, "simulate this bundled machine instead of reading the node", "NAME"
        ),
    )
    snapshot: Path | None = field(
        default=None,
        metadata=option(values.path, "simulate the machine of this snapshot file", "FILE"),
    )
    or_simulate: bool = field(
        default=False,
        metadata=switch(
            "simulate the default machine where NVML is missing, a kubelet where there is none"
        ),
    )
    once: bool = field(
        default=False,
        metadata=switch("do everything once, print it, and end"),
    )
    sysfs_root: Path = field(
        default=Path("/sys"),
        metadata=option(values.path, "where the kernel's sysfs is mounted", "DIR"),
    )
    procfs_root: Path = field(
        default=Path("/proc"),
        metadata=option(values.path, "where the host's procfs is mounted", "DIR"),
    )
    host_root: Path = field(
        default=Path("/"),
        metadata=option(values.path, "where the host's file system is mounted", "DIR"),
    )
    nvml_library: Path | None = field(
        default=None,
        metadata=option(
            values.path, "libnvidia-ml.so.1 or its directory; default the loader's", "PATH"
        ),
    )
    scan_interval_s: float = field(
        default=60.0,  # topology is static: health is what this looks for
        metadata=option(
            values.scan_interval,
            "time between two scans of the node, such as 90, 90s or 5m; 1 s or more",
            "TIME",
            is_live=True,
        ),
    )
    metrics_address: str | None = field(
        default="127.0.0.1:9430",  # reachable from outside only on request
        metadata=option(
            values.address, "host:port of /metrics, /healthz and /readyz; `none` for none", "ADDR"
        ),
    )
    log_format: str = field(
        default="auto",  # text on a terminal, JSON elsewhere
        metadata=choice("form of the log", "auto", "json", "text"),
    )
    log_level: str = field(
        default="info",
        metadata=choice("least severe line that is logged", "debug", "info", "warning", "error"),
    )
