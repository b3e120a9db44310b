"""The fields of a KubeletConfiguration that matter here, decoded.

Types as k8s.io/kubelet v0.36.3 config/v1beta1/types.go declares them: Go's decoder takes no number
for a text, an integer for a count however it is written, and any number for a quantity. It leaves
null at the zero value of the type.
"""

from collections.abc import Callable, Mapping, Sized
from types import MappingProxyType
from typing import Any, TypeVar

from nodetopo.errors import DecodeError
from nodetopo.formats.fields import as_flag, as_items, as_object, as_text, unexpected
from nodetopo.model.kubelet import KubeletSettings, ReservedMemory
from nodetopo.model.limits import MAX_INT64

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
"""The fields that are decoded here."""

READ = FIELDS | {"apiVersion", "kind", "mergeDefaultEvictionSettings"}
"""The fields of a file that have a part in these, and so all that a capture of it must keep."""

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

_T = TypeVar("_T")


def settings_of(document: Mapping[str, Any], source: str) -> KubeletSettings:
    """Return the settings of a complete *document*; absent ones are empty.

    Only those without an empty value, such as numbers, are None when absent.
    """

    def text(field: str) -> str:
        return _text(document.get(field), field)

    def flag(field: str) -> bool | None:
        value = document.get(field)
        return None if value is None else as_flag(value, field)

    def texts(field: str) -> dict[str, str]:
        return _entries(document.get(field), field, _text)

    swap = as_object(document.get("memorySwap"), "memorySwap")
    _check_size(swap, "memorySwap")
    return KubeletSettings(
        source=source,
        cpu_manager_policy=text("cpuManagerPolicy"),
        cpu_manager_options=texts("cpuManagerPolicyOptions"),
        memory_manager_policy=text("memoryManagerPolicy"),
        topology_manager_policy=text("topologyManagerPolicy"),
        topology_manager_scope=text("topologyManagerScope"),
        topology_manager_options=texts("topologyManagerPolicyOptions"),
        reserved_system_cpus=text("reservedSystemCPUs"),
        system_reserved=texts("systemReserved"),
        kube_reserved=texts("kubeReserved"),
        eviction_hard=texts("evictionHard"),
        reserved_memory=_list(document, "reservedMemory", _reservation),
        feature_gates=_entries(
            document.get("featureGates"),
            "featureGates",
            lambda value, path: value is not None and as_flag(value, path),
        ),
        enforce_node_allocatable=_list(document, "enforceNodeAllocatable", _text),
        system_reserved_cgroup=text("systemReservedCgroup"),
        kube_reserved_cgroup=text("kubeReservedCgroup"),
        cgroup_driver=text("cgroupDriver"),
        cpu_cfs_quota=flag("cpuCFSQuota"),
        fail_swap_on=flag("failSwapOn"),
        swap_behavior=_text(swap.get("swapBehavior"), "memorySwap.swapBehavior"),
        pod_pids_limit=_integer(document.get("podPidsLimit"), "podPidsLimit"),
        max_pods=_integer(document.get("maxPods"), "maxPods"),
    )


def _reservation(value: Any, path: str) -> ReservedMemory:
    def quantity(value: Any, path: str) -> str:
        return str(value) if _is_number(value) else _text(value, path)

    if not isinstance(value, Mapping):
        raise unexpected(path, "an object", value)
    limits = _entries(value.get("limits"), f"{path}.limits", quantity)
    numa_node = _integer(value.get("numaNode"), f"{path}.numaNode")
    return ReservedMemory(numa_node=numa_node or 0, limits=limits)


def _text(value: Any, path: str) -> str:
    return "" if value is None else as_text(value, path)


def _integer(value: Any, path: str) -> int | None:
    if value is None:
        return None
    is_whole = _is_number(value) and abs(value) <= MAX_INT64 and value == int(value)
    if not is_whole:  # nor is NaN
        raise DecodeError(path, f"expected a whole number, found {str(value)[:40]!r}")
    return int(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _entries(value: Any, path: str, decode: Callable[[Any, str], _T]) -> dict[str, _T]:
    """Return the entries of an object, sorted by key."""
    entries = as_object(value, path)
    _check_size(entries, path)
    return {key: decode(entries[key], f"{path}.{key}") for key in sorted(entries)}


def _list(
    document: Mapping[str, Any], field: str, decode: Callable[[Any, str], _T]
) -> tuple[_T, ...]:
    items = list(as_items(document.get(field), field))
    _check_size(items, field)
    return tuple(decode(item, path) for item, path in items)


def _check_size(value: Sized, path: str) -> None:
    if len(value) > MAX_ENTRIES:
        raise DecodeError(path, f"more than {MAX_ENTRIES} entries")
