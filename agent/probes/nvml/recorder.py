"""Write down what NVML answers, call by call, so that the node can be played elsewhere.

One answer a line, ``<function> <arguments> = <return code> [value | value …]``, in the format
that the head of ``tests/fake_nvml/libnvidia-ml.c`` describes: functions by their C names, a GPU
as its index, a MIG device as ``<gpu>:<slot>``, a GPU instance as ``<gpu> <id>``.
"""

import ctypes
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from agent.model.numa import CpuSet
from agent.probes.nvml.reading import NvmlReading
from agent.probes.nvml.values import FIELD_MEMBERS, cluster_uuid, cpu_set

HEADER = "# What NVML answered, return codes included; written by `nodetopo capture --raw`.\n"

_ASKED = ("nvmlDevice", "nvmlSystem", "nvmlGpuInstance")
_C_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "nvmlDeviceGetCount": "nvmlDeviceGetCount_v2",
        "nvmlDeviceGetHandleByIndex": "nvmlDeviceGetHandleByIndex_v2",
        "nvmlDeviceGetNvLinkRemotePciInfo": "nvmlDeviceGetNvLinkRemotePciInfo_v2",
        # The same answers, in an older library's form:
        "nvmlSystemGetCudaDriverVersion": "nvmlSystemGetCudaDriverVersion_v2",
        "nvmlDeviceGetGpuFabricInfo": "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetCurrentClocksThrottleReasons": "nvmlDeviceGetCurrentClocksEventReasons",
    },
)
_MASKS = ("nvmlDeviceGetCpuAffinity", "nvmlDeviceGetMemoryAffinity")
_FIELD_VALUES = "nvmlDeviceGetFieldValues"
_UNWRITABLE = re.compile(r"[\x00-\x1f\x7f#]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One scan of NVML.

    Attributes:
        answers: every call of it with its answer; empty unless they were asked for.
    """

    reading: NvmlReading
    answers: str = ""


class Recorder:
    """Stands for the module ``pynvml``, and remembers what its functions were asked and gave."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._names: dict[int, str] = {}
        self._lines: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._nvml, name)
        if not name.startswith(_ASKED) or not callable(found):
            return found
        return lambda *arguments: self._call(name, found, arguments)

    def around(self, nvml: Any) -> Any:
        """Stand for this module from now on."""
        self._nvml = nvml
        return self

    @property
    def text(self) -> str:
        """All answers so far, in the order of the calls."""
        return HEADER + "".join(f"{call} = {answer}\n" for call, answer in self._lines.items())

    def _call(self, name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        try:
            value = function(*arguments)
        except self._nvml.NVMLError as error:
            self._refused(name, arguments, error.value)
            raise
        if name == _FIELD_VALUES:
            self._keep_fields(arguments, value)
            return value
        self._remember_handle(name, arguments, value)
        self._keep(_key(name, self._texts(name, arguments)), 0, _values(name, arguments, value))
        return value

    def _refused(self, name: str, arguments: tuple[Any, ...], code: int) -> None:
        if name != _FIELD_VALUES:
            self._keep(_key(name, self._texts(name, arguments)), code, ())
            return
        for field, scope in arguments[1]:
            self._keep(self._field_key(arguments[0], field, scope), code, ())

    def _keep_fields(self, arguments: tuple[Any, ...], fields: Iterable[Any]) -> None:
        for (number, scope), field in zip(arguments[1], fields, strict=True):
            value = () if field.nvmlReturn else (_field_number(field),)
            self._keep(self._field_key(arguments[0], number, scope), field.nvmlReturn, value)

    def _field_key(self, handle: Any, number: int, scope: int) -> str:
        return f"nvmlDeviceGetFieldValue {self._name(handle)} {number} {scope}"

    def _keep(self, key: str, code: int, values: Iterable[object]) -> None:
        texts = (_UNWRITABLE.sub(" ", str(value)) for value in values)
        # An older or newer form of a call is tried after a refusal: what it gives counts.
        if code == 0 or key not in self._lines:
            self._lines[key] = f"{code} {' | '.join(texts)}".rstrip()

    def _texts(self, name: str, arguments: tuple[Any, ...]) -> list[str]:
        numbers = [argument for argument in arguments if isinstance(argument, int)]
        if name in _MASKS:  # the first number is how many words we have room for
            numbers = numbers[1:]
        handles = [self._name(argument) for argument in arguments if _address(argument) is not None]
        return [*handles, *map(str, numbers)]

    def _name(self, handle: Any) -> str:
        return self._names.get(_address(handle) or 0, "?")

    def _remember_handle(self, name: str, arguments: tuple[Any, ...], value: Any) -> None:
        address = _address(value)
        if address is None:
            return
        parent = self._texts(name, arguments)
        separator = ":" if name == "nvmlDeviceGetMigDeviceHandleByIndex" else " "
        self._names[address] = separator.join(parent)


def _key(name: str, texts: Iterable[str]) -> str:
    return " ".join((_C_NAMES.get(name, name), *texts))


def _address(value: Any) -> int | None:
    """Return where an opaque handle points; ``None`` for what is no handle."""
    is_pointer = isinstance(value, ctypes._Pointer)  # noqa: SLF001 - the base has no public name
    return ctypes.cast(value, ctypes.c_void_p).value if is_pointer else None


def _values(name: str, arguments: tuple[Any, ...], value: Any) -> tuple[object, ...]:
    if name in _STRUCTS:
        return tuple(_STRUCTS[name](value))
    if name.startswith("nvmlDeviceGetGpuFabricInfo"):
        return tuple(_fabric(arguments[1]._obj))  # noqa: SLF001 - how ctypes names byref's target
    if name in _MASKS:
        return (cpu_set(value) or CpuSet(),)
    if _address(value) is not None or value is None:
        return ()
    if isinstance(value, list | tuple):
        return tuple(value)
    return (value.decode("utf-8", "replace") if isinstance(value, bytes) else value,)


def _pci(info: Any) -> tuple[object, ...]:
    bus_id = info.busId.decode("ascii", "replace") if isinstance(info.busId, bytes) else info.busId
    return bus_id, f"0x{info.pciDeviceId:08X}"


def _members(*names: str) -> Callable[[Any], tuple[object, ...]]:
    return lambda struct: tuple(getattr(struct, name) for name in names)


def _attributes(struct: Any) -> tuple[object, ...]:
    return tuple(getattr(struct, name) for name, *_ in struct._fields_)


def _gpu_instance(info: Any) -> tuple[object, ...]:
    return info.profileId, info.placement.start, info.placement.size


_STRUCTS: Mapping[str, Callable[[Any], tuple[object, ...]]] = MappingProxyType(
    {
        "nvmlDeviceGetPciInfo_v3": _pci,
        "nvmlDeviceGetNvLinkRemotePciInfo": _pci,
        "nvmlDeviceGetMemoryInfo": _members("total", "free", "used"),
        "nvmlDeviceGetC2cModeInfoV": _members("isC2cEnabled"),
        "nvmlDeviceGetAttributes_v2": _attributes,
        "nvmlGpuInstanceGetInfo": _gpu_instance,
        "nvmlSystemGetConfComputeState": _members("environment", "ccFeature", "devToolsMode"),
    },
)


def _fabric(info: Any) -> tuple[object, ...]:
    newer = (getattr(info, name, None) for name in ("healthMask", "healthSummary"))
    health = (value for value in newer if value is not None)
    return info.state, info.status, cluster_uuid(info), info.cliqueId, *health


def _field_number(field: Any) -> int:
    known = field.valueType < len(FIELD_MEMBERS)
    return int(getattr(field.value, FIELD_MEMBERS[field.valueType] if known else "ullVal"))
