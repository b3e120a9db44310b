"""The fields of a KubeletConfiguration that matter here, decoded.

Kinds as k8s.io/kubelet v0.36.3 config/v1beta1/types.go declares them: Go's decoder takes no number
for a text, a whole one for a count however it is written, and any for a quantity.
"""

from collections.abc import Callable, Mapping, Sized
from math import isfinite
from types import MappingProxyType
from typing import Any

from agent.errors import DecodeError
from agent.model.kubelet import KubeletSettings, ReservedMemory

Document = dict[str, Any]
"""One KubeletConfiguration, as JSON has it."""

KIND = "KubeletConfiguration"
API_VERSION = "kubelet.config.k8s.io/v1beta1"

FIELDS = frozenset(
    """
    cpuManagerPolicy cpuManagerPolicyOptions memoryManagerPolicy topologyManagerPolicy
    topologyManagerScope topologyManagerPolicyOptions reservedSystemCPUs systemReserved
    kubeReserved evictionHard reservedMemory featureGates enforceNodeAllocatable
    systemReservedCgroup kubeReservedCgroup cgroupDriver cpuCFSQuota failSwapOn memorySwap
    podPidsLimit maxPods
    """.split(),  # noqa: SIM905 - as prose
)
"""What of a KubeletConfiguration is decoded here."""

READ = FIELDS | {"apiVersion", "kind", "mergeDefaultEvictionSettings"}
"""What of a file has a part in that, and so all that a capture of it needs to keep."""

DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "cpuManagerPolicy": "none",
        "memoryManagerPolicy": "None",
        "topologyManagerPolicy": "none",
        "topologyManagerScope": "container",
        "enforceNodeAllocatable": ["pods"],
        "cgroupDriver": "cgroupfs",
        "cpuCFSQuota": True,
        "failSwapOn": True,
        "podPidsLimit": -1,
        "maxPods": 110,
    },
)
"""kubernetes v1.36.3 pkg/kubelet/apis/config/v1beta1/defaults.go."""

DEFAULT_EVICTION: Mapping[str, str] = MappingProxyType(
    {
        "memory.available": "100Mi",
        "nodefs.available": "10%",
        "nodefs.inodesFree": "5%",
        "imagefs.available": "15%",
        "imagefs.inodesFree": "5%",
    },
)
"""Hard eviction where a file does not state it (pkg/kubelet/eviction/defaults_linux.go)."""

MAX_ENTRIES = 4096
"""Most entries of one map or list; kubernetes 1.36 has about 200 feature gates."""


def settings_of(document: Mapping[str, Any], source: str) -> KubeletSettings:
    """Return the settings that a complete *document* has; absent ones are empty.

    Only what it has no empty value for, such as a number, is ``None`` when absent.

    Raises:
        DecodeError: a field is of the wrong kind; the path is the field's.
    """
    swap = _map(document, "memorySwap")
    return KubeletSettings(
        source=source,
        cpu_manager_policy=_text(document, "cpuManagerPolicy"),
        cpu_manager_options=_texts(document, "cpuManagerPolicyOptions"),
        memory_manager_policy=_text(document, "memoryManagerPolicy"),
        topology_manager_policy=_text(document, "topologyManagerPolicy"),
        topology_manager_scope=_text(document, "topologyManagerScope"),
        topology_manager_options=_texts(document, "topologyManagerPolicyOptions"),
        reserved_system_cpus=_text(document, "reservedSystemCPUs"),
        system_reserved=_texts(document, "systemReserved"),
        kube_reserved=_texts(document, "kubeReserved"),
        eviction_hard=_texts(document, "evictionHard"),
        reserved_memory=_reserved_memory(document),
        feature_gates=_entries(document, "featureGates", _as_bool),
        enforce_node_allocatable=_list(document, "enforceNodeAllocatable", _as_text),
        system_reserved_cgroup=_text(document, "systemReservedCgroup"),
        kube_reserved_cgroup=_text(document, "kubeReservedCgroup"),
        cgroup_driver=_text(document, "cgroupDriver"),
        cpu_cfs_quota=_bool(document, "cpuCFSQuota"),
        fail_swap_on=_bool(document, "failSwapOn"),
        swap_behavior=_entry(swap, "swapBehavior", _as_text, "memorySwap.") or "",
        pod_pids_limit=_whole(document, "podPidsLimit"),
        max_pods=_whole(document, "maxPods"),
    )


def _as_text(value: Any, path: str) -> str:
    if value is None:  # which Go's decoder leaves at its zero value, here and below
        return ""
    if not isinstance(value, str):
        raise DecodeError(path, f"expected a text, found {type(value).__name__}")
    return value


def _as_bool(value: Any, path: str) -> bool:
    if value is not None and not isinstance(value, bool):
        raise DecodeError(path, f"expected true or false, found {type(value).__name__}")
    return bool(value)


def _as_whole(value: Any, path: str) -> int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not isfinite(value) or value != int(value):
        raise DecodeError(path, f"expected a whole number, found {str(value)[:40]!r}")
    return int(value)


def _as_quantity(value: Any, path: str) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else _as_text(value, path)


def _entry(document: Mapping[str, Any], field: str, decode: Any, prefix: str = "") -> Any:
    value = document.get(field)
    return None if value is None else decode(value, prefix + field)


def _text(document: Mapping[str, Any], field: str) -> str:
    return _entry(document, field, _as_text) or ""


def _bool(document: Mapping[str, Any], field: str) -> bool | None:
    found: bool | None = _entry(document, field, _as_bool)
    return found


def _whole(document: Mapping[str, Any], field: str) -> int | None:
    found: int | None = _entry(document, field, _as_whole)
    return found


def _map(document: Mapping[str, Any], field: str, path: str = "") -> Mapping[str, Any]:
    value = document.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DecodeError(path or field, f"expected an object, found {type(value).__name__}")
    _check_size(value, path or field)
    return value


def _check_size(value: Sized, path: str) -> None:
    if len(value) > MAX_ENTRIES:
        raise DecodeError(path, f"more than {MAX_ENTRIES} entries")


def _texts(document: Mapping[str, Any], field: str) -> dict[str, str]:
    found: dict[str, str] = _entries(document, field, _as_text)
    return found


def _entries(document: Mapping[str, Any], field: str, decode: Callable[[Any, str], Any]) -> Any:
    found = _map(document, field)
    return {key: decode(found[key], f"{field}.{key}") for key in sorted(found)}


def _list(document: Mapping[str, Any], field: str, decode: Callable[[Any, str], Any]) -> Any:
    value = document.get(field)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise DecodeError(field, f"expected a list, found {type(value).__name__}")
    _check_size(value, field)
    return tuple(decode(item, f"{field}[{place}]") for place, item in enumerate(value))


def _reserved_memory(document: Mapping[str, Any]) -> tuple[ReservedMemory, ...]:
    found: tuple[ReservedMemory, ...] = _list(document, "reservedMemory", _reservation)
    return found


def _reservation(value: Any, path: str) -> ReservedMemory:
    if not isinstance(value, dict):
        raise DecodeError(path, f"expected an object, found {type(value).__name__}")
    limits = _map(value, "limits", f"{path}.limits")
    return ReservedMemory(
        numa_node=_entry(value, "numaNode", _as_whole, f"{path}.") or 0,
        limits={key: _as_quantity(limits[key], f"{path}.limits.{key}") for key in sorted(limits)},
    )
