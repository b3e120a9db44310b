"""A transcript of NVML's answers, call by call, from which a fake library can replay the node.

One answer a line, ``<function> <arguments> = <return code> [value | value …]``, in the format
that the head of ``tests/fake_nvml/libnvidia-ml.c`` describes: functions by their C names, a GPU
as its index, a MIG device as ``<gpu>:<slot>``, a GPU instance as ``<gpu> <id>``.
"""

import ctypes
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from nodetopo.model.numa import CpuSet
from nodetopo.probes.nvml.values import FIELD_MEMBERS, cluster_uuid, cpu_set

HEADER = "# What NVML answered, return codes included; written by `nodetopo capture --raw`.\n"

_RECORDED = ("nvmlDevice", "nvmlSystem", "nvmlGpuInstance")
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


class Recorder:
    """Takes the place of the module ``pynvml`` and records its functions' arguments and results."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._names: dict[int, str] = {}
        self._lines: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._nvml, name)
        if not name.startswith(_RECORDED) or not callable(attribute):
            return attribute
        record = self._record_fields if name == _FIELD_VALUES else self._record
        return lambda *arguments: record(name, attribute, arguments)

    def around(self, nvml: Any) -> Any:
        """Take the place of this module from now on."""
        self._nvml = nvml
        return self

    @property
    def text(self) -> str:
        """All answers so far, in the order of the calls."""
        return HEADER + "".join(f"{call} = {answer}\n" for call, answer in self._lines.items())

    def _record(self, name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        numbers = [argument for argument in arguments if isinstance(argument, int)]
        if name in _MASKS:  # the first number is how many words we have room for
            numbers = numbers[1:]
        handles = [self._name(argument) for argument in arguments if _address(argument) is not None]
        texts = [*handles, *map(str, numbers)]
        key = " ".join((_C_NAMES.get(name, name), *texts))
        try:
            value = function(*arguments)
        except self._nvml.NVMLError as error:
            self._keep(key, error.value, ())
            raise
        address = _address(value)
        if address is not None:
            separator = ":" if name == "nvmlDeviceGetMigDeviceHandleByIndex" else " "
            self._names[address] = separator.join(texts)
        self._keep(key, 0, _values(name, arguments, value))
        return value

    def _record_fields(
        self, _: str, function: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> Any:
        handle, wanted = arguments
        keys = [
            f"nvmlDeviceGetFieldValue {self._name(handle)} {field} {at}" for field, at in wanted
        ]
        try:
            fields = function(*arguments)
        except self._nvml.NVMLError as error:
            for key in keys:
                self._keep(key, error.value, ())
            raise
        for key, field in zip(keys, fields, strict=True):
            known = field.valueType < len(FIELD_MEMBERS)
            member = FIELD_MEMBERS[field.valueType] if known else "ullVal"
            number = () if field.nvmlReturn else (int(getattr(field.value, member)),)
            self._keep(key, field.nvmlReturn, number)
        return fields

    def _keep(self, key: str, code: int, values: Iterable[object]) -> None:
        texts = (_UNWRITABLE.sub(" ", str(value)) for value in values)
        # An older or newer form of a call is tried after a refusal: its answer counts.
        if code == 0 or key not in self._lines:
            self._lines[key] = f"{code} {' | '.join(texts)}".rstrip()

    def _name(self, handle: Any) -> str:
        return self._names.get(_address(handle) or 0, "?")


def _address(value: Any) -> int | None:
    """Return the address of an opaque handle; ``None`` for any other value."""
    is_pointer = isinstance(value, ctypes._Pointer)  # noqa: SLF001 - the base has no public name
    return ctypes.cast(value, ctypes.c_void_p).value if is_pointer else None


def _values(name: str, arguments: tuple[Any, ...], value: Any) -> tuple[object, ...]:
    """Return the values of one answer, as they are written."""
    if name in ("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetNvLinkRemotePciInfo"):
        bus = (
            value.busId.decode("ascii", "replace")
            if isinstance(value.busId, bytes)
            else value.busId
        )
        return bus, f"0x{value.pciDeviceId:08X}"
    if name == "nvmlDeviceGetAttributes_v2":
        return tuple(getattr(value, member) for member, *_ in value._fields_)
    if name == "nvmlGpuInstanceGetInfo":
        return value.profileId, value.placement.start, value.placement.size
    if name in _MEMBERS:
        return tuple(getattr(value, member) for member in _MEMBERS[name])
    if name == "nvmlDeviceGetSramEccErrorStatus":
        status = arguments[1]._obj  # noqa: SLF001 - how ctypes names byref's target
        return tuple(getattr(status, member) for member, *_ in status._fields_[1:])
    if name.startswith("nvmlDeviceGetGpuFabricInfo"):
        info = arguments[1]._obj  # noqa: SLF001 - how ctypes names byref's target
        newer = (getattr(info, member, None) for member in ("healthMask", "healthSummary"))
        health = (number for number in newer if number is not None)
        return info.state, info.status, cluster_uuid(info), info.cliqueId, *health
    if name in _MASKS:
        return (cpu_set(value) or CpuSet(),)
    if _address(value) is not None or value is None:
        return ()
    if isinstance(value, list | tuple):
        return tuple(value)
    return (value.decode("utf-8", "replace") if isinstance(value, bytes) else value,)


_MEMBERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "nvmlDeviceGetMemoryInfo": ("total", "free", "used"),
        "nvmlDeviceGetC2cModeInfoV": ("isC2cEnabled",),
        "nvmlSystemGetConfComputeState": ("environment", "ccFeature", "devToolsMode"),
    },
)
"""The recorded members of a struct."""
