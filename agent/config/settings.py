"""The settings: each field declared once, with default, unit, reason and reader."""

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from agent.allocation.rules import Model, Policy
from agent.config import values
from agent.config.placement import PlacementPolicies, placement
from agent.config.values import Option

HOST_DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
"""Where every kubelet listens, whatever its root (k8s.io/kubelet v1beta1 DevicePluginPath)."""

PREFIX = "NODETOPO_"
"""Of every environment variable that is a setting."""


def _option(
    read: Callable[[object], object],
    explanation: str,
    metavar: str,
    choices: tuple[str, ...] = (),
) -> dict[str, Option]:
    return {"option": Option(read=read, help=explanation, metavar=metavar, choices=choices)}


def _choice(explanation: str, *choices: str) -> dict[str, Option]:
    return _option(values.one_of(choices), explanation, "WORD", choices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All that the daemon can be told; the text beside each field is its ``--help``."""

    node_name: str = field(
        metadata=_option(
            values.text, "name of the Node object; default $NODE_NAME, else host", "NAME"
        ),
    )
    machine: str | None = field(
        default=None,
        metadata=_option(
            values.text, "simulate this bundled machine instead of reading the node", "NAME"
        ),
    )
    snapshot: Path | None = field(
        default=None,
        metadata=_option(values.path, "simulate the machine of this snapshot file", "FILE"),
    )
    or_simulate: bool = field(
        default=False,
        metadata=_option(
            values.switch,
            "simulate the default machine where NVML is missing, a kubelet where that is",
            "BOOL",
        ),
    )
    once: bool = field(
        default=False,
        metadata=_option(values.switch, "do everything once, print it, and end", "BOOL"),
    )
    sysfs_root: Path = field(
        default=Path("/sys"),
        metadata=_option(values.path, "where the kernel's sysfs is mounted", "DIR"),
    )
    procfs_root: Path = field(
        default=Path("/proc"),
        metadata=_option(values.path, "where the host's procfs is mounted", "DIR"),
    )
    host_root: Path = field(
        default=Path("/"),
        metadata=_option(values.path, "where the host's file system is mounted", "DIR"),
    )
    nvml_library: Path | None = field(
        default=None,
        metadata=_option(
            values.path, "libnvidia-ml.so.1 or its directory; default the loader's", "PATH"
        ),
    )
    kubeconfig: Path | None = field(
        default=None,
        metadata=_option(values.path, "how to reach the API server; default the pod's own", "FILE"),
    )
    publish_labels: bool = field(
        default=False,
        metadata=_option(
            values.switch,
            "write labels to the Node; default yes with a kubeconfig or in a cluster",
            "BOOL",
        ),
    )
    device_plugin_dir: Path = field(
        default=HOST_DEVICE_PLUGINS,
        metadata=_option(values.path, "directory with the kubelet's registration socket", "DIR"),
    )
    pod_resources_socket: Path = field(
        default=Path("/var/lib/kubelet/pod-resources/kubelet.sock"),  # kubelet's fixed path
        metadata=_option(values.path, "socket of the kubelet's PodResources API", "PATH"),
    )
    metrics_address: str | None = field(
        default="127.0.0.1:9430",  # reachable from outside only on request: it names pods
        metadata=_option(
            values.address, "host:port of /metrics and /healthz; `none` for none", "ADDR"
        ),
    )
    scan_interval_s: float = field(
        default=60.0,  # topology is static: health is what this looks for
        metadata=_option(
            values.scan_interval, "seconds between two scans of the node, 1 or more", "TIME"
        ),
    )
    resource_name: str = field(
        default="nvidia.com/gpu",
        metadata=_option(values.resource, "resource offered to the kubelet", "NAME"),
    )
    device_list_strategy: tuple[str, ...] = field(
        default=("cdi-cri",),
        metadata=_option(
            values.several_of(("cdi-cri", "envvar", "device-specs")),
            "how devices reach a container; several separated by commas",
            "LIST",
        ),
    )
    cdi_kind: str = field(
        default="nvidia.com/gpu",  # what nvidia-ctk writes into /var/run/cdi
        metadata=_option(values.resource, "vendor/class of the CDI devices", "NAME"),
    )
    numa_mode: str = field(
        default="numa",
        metadata=_choice("what the kubelet is told about NUMA", "numa", "none"),
    )
    placement_policy: PlacementPolicies = field(
        default=PlacementPolicies(),  # `best` for all: the least bandwidth lost on traces
        metadata=_option(
            placement,
            f"{', '.join(Policy)}: one for all resources, or RESOURCE=WORD by comma",
            "LIST",
        ),
    )
    bandwidth_model: str = field(
        default=Model.RING.value,
        metadata=_choice(
            "how the bandwidth of a set of GPUs is estimated", *(model.value for model in Model)
        ),
    )
    bandwidth_table: Path | None = field(
        default=None,
        metadata=_option(
            values.path, "measured bandwidths, YAML or JSON; they win over the model", "FILE"
        ),
    )
    log_format: str = field(
        default="auto",  # text on a terminal, JSON elsewhere
        metadata=_choice("form of the log", "auto", "json", "text"),
    )
    log_level: str = field(
        default="info",
        metadata=_choice("least severe line that is logged", "debug", "info", "warning", "error"),
    )


def options() -> Mapping[str, Option]:
    """Return every setting by field name, in the order of declaration."""
    return {item.name: _metadata(item) for item in fields(Settings)}


def option(name: str) -> Option:
    """Return the option of the field *name*."""
    return options()[name]


def key(name: str) -> str:
    """Return the YAML key of a field, which is also its flag without the dashes."""
    return name.removesuffix("_s").replace("_", "-")


def variable(name: str) -> str:
    """Return the environment variable of a field."""
    return PREFIX + name.removesuffix("_s").upper()


def _metadata(item: Field[Any]) -> Option:
    found = item.metadata["option"]
    assert isinstance(found, Option)
    return found
