"""Removes the facts of an input from a decoded snapshot.

Reading a machine again for each input of each rule would dominate the cost of the corpus. This
table covers the inputs that several rules name; `test_rules.py` compares each edit with a machine
that is read without the input.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot

Edit = Callable[[Snapshot], Snapshot]

_CONFIG = "var/lib/kubelet/config.yaml"
_ALSO_TOLD_BY: Mapping[str, str] = {
    _CONFIG: "configz.json",
    "pods.yaml": "podresources.yaml",
    "podresources.yaml": "pods.yaml",
}
"""Inputs with fewer facts on machines that have the other input too."""

_READ = frozenset({("KUB-029", _CONFIG), ("RUN-012", "node.yaml")})
"""Rules whose machines have processes that depend on the input."""


def edit_for(directory: Path, name: str) -> Edit | None:
    """Return the edit that removes the input *name* from the snapshot of *directory*.

    None if the machine must be read without the input.
    """
    other = _ALSO_TOLD_BY.get(name)
    if (directory.parent.name, name) in _READ or (other and (directory / other).exists()):
        return None
    return EDITS.get(name)


def _unknown(*paths: str, issue: ProbeIssue | None = None) -> Edit:
    """Return an edit that puts None at each of *paths*, such as ``hcas.ports.state``."""

    def edited(snapshot: Snapshot) -> Snapshot:
        for path in paths:
            snapshot = _without(snapshot, path)
        return snapshot if issue is None else replace(snapshot, issues=(*snapshot.issues, issue))

    return edited


def _without(value: Any, path: str) -> Any:
    if isinstance(value, tuple):
        return tuple(_without(each, path) for each in value)
    if value is None:
        return None
    name, _, rest = path.partition(".")
    return replace(value, **{name: _without(getattr(value, name), rest) if rest else None})


def _without_gpus(snapshot: Snapshot) -> Snapshot:
    """Return *snapshot* where NVML does not count its GPUs; PCI still shows them."""
    issues = (
        ProbeIssue(
            probe="nvml", subject="library", reason="NVML does not count its GPUs: Not Supported"
        ),
        ProbeIssue(
            probe="pcie",
            subject=f"{len(snapshot.pci_gpus or ())} NVIDIA GPUs on PCI",
            reason="NVML lists none of them",
        ),
    )
    return replace(
        snapshot,
        driver_version=None,
        nvml_version=None,
        cuda_version=None,
        gpus=(),
        nvlinks=None,
        pairs=(),
        issues=(*snapshot.issues, *issues),
    )


EDITS: Mapping[str, Edit] = {
    "nvml nvmlDeviceGetCount_v2": _without_gpus,
    "nvml nvmlDeviceGetNvLinkState": lambda snapshot: replace(snapshot, nvlinks=()),
    "nvml nvmlDeviceGetMigMode": _unknown("gpus.mig"),
    "nvml nvmlDeviceGetUUID": _unknown("gpus.uuid"),
    "nvml nvmlDeviceGetRemappedRows": _unknown("gpus.remapped_rows"),
    "nvml nvmlDeviceGetGpuFabricInfoV": _unknown("gpus.fabric"),
    "nvml nvmlDeviceGetP2PStatus": _unknown("pairs.forward", "pairs.backward"),
    _CONFIG: _unknown(
        "kubelet",
        "kubelet_on_disk",
        issue=ProbeIssue(
            probe="kubelet",
            subject=f"/{_CONFIG}",
            reason="no such file, and no kubelet process was seen",
        ),
    ),
    "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint": _unknown("kubelet_state.devices"),
    "sys/devices/system/node": _unknown(
        "numa_nodes",
        issue=ProbeIssue(
            probe="numa", subject="devices/system/node", reason="the kernel lists no NUMA nodes"
        ),
    ),
    "sys/devices/system/cpu": _unknown(
        "cpu",
        "host.energy_preferences",
        "host.frequency_drivers",
        issue=ProbeIssue(
            probe="cpu", subject="devices/system/cpu/online", reason="the kernel lists no CPUs"
        ),
    ),
    **{
        f"sys/class/infiniband/*/ports/*/{file}": _unknown(f"hcas.ports.{field}")
        for file, field in (("state", "state"), ("link_layer", "layer"), ("rate", "rate_gbps"))
    },
    "etc/cdi": _unknown("host.cdi_specs"),
    "etc/containerd/config.toml": _unknown("host.runtime_configs"),
    "etc/nvidia-container-runtime/config.toml": _unknown("host.toolkit"),
    "pods.yaml": _unknown("pods"),
    "podresources.yaml": _unknown("pods"),
    "node.yaml": _unknown("node_status"),
    "slices.yaml": _unknown("published"),
    "offer.yaml": _unknown("offer"),
    "metrics.txt": _unknown("kubelet_metrics"),
}
"""Input → the edit that removes its facts."""
