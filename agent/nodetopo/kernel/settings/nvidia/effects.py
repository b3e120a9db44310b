"""The effect of NVIDIA's settings: translated settings, remarks, and refusals."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from nodetopo.allocation.rules import Policy
from nodetopo.deviceplugin.host_files import exists
from nodetopo.deviceplugin.settings import Strategy
from nodetopo.errors import InputError
from nodetopo.kernel.settings.declare import default, option
from nodetopo.kernel.settings.nvidia.names import NAMES
from nodetopo.kernel.settings.origin import Given, SettingSource
from nodetopo.kernel.settings.policies import LAST_XID, PlacementPolicies, TimeSlicing, XidClasses
from nodetopo.model.digits import is_digits
from nodetopo.model.gpu_health import HealthClass
from nodetopo.model.kubernetes import MIG_RESOURCES
from nodetopo.model.xid import xid

DISABLE, ENABLE = "DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS"
"""The first names XIDs that leave a GPU healthy, the second XIDs that do not, and the second wins;
words that are no XID are ignored (k8s-device-plugin v0.19.0, internal/rm/health.go)."""

EVERY = ("all", "xids")
"""Either selects every XID."""

MILD = (HealthClass.APP, HealthClass.DEGRADED)
"""Classes that leave a GPU Healthy."""

_SAME_VALUE: Mapping[str, str] = MappingProxyType(
    {
        "mig-strategy": "mig_strategy",
        "device-list-strategy": "device_list_strategy",
        "sharing.timeSlicing": "time_slicing",
        "gdrcopy-enabled": "gdrcopy",
        "gds-enabled": "gds",
        "mofed-enabled": "mofed",
        "imex-channel-ids": "imex_channels",
        "imex-required": "imex_required",
        "FALLBACK_STRATEGIES": "config_fallbacks",
    }
)
"""Settings whose value is used unchanged, by NVIDIA's name."""

_SAME_TEXT: Mapping[str, str] = MappingProxyType(
    {
        "cdi-annotation-prefix": "cdi_annotation_prefix",
        "cdi-disable-hooks": "cdi_disable_hooks",
        "CONFIG_FILE_SRCDIR": "config_dir",
        "NODE_LABEL": "config_label",
        "DEFAULT_CONFIG": "default_config",
    }
)
"""Settings whose text our own parsers read, by NVIDIA's name."""

_ROOTS: Mapping[str, str] = MappingProxyType(
    {
        "nvidia-driver-root": "driver_root",
        "nvidia-dev-root": "dev_root",
        "nvidia-cdi-hook-path": "cdi_hook",
    }
)
"""Absolute paths, by NVIDIA's name; an empty one counts as not set."""

_SOCKET = "kubelet.sock"

_LIBRARY = "libnvidia-ml.so.1"

_LIBRARY_DIRS = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
)
"""Where NVIDIA's device plugin looks below its driver root (cmd/nvidia-device-plugin/root.go)."""


def join(chosen: dict[str, Given], nvidia: Mapping[str, Given]) -> tuple[str, ...]:
    """Put *nvidia*, by NVIDIA's name, into our settings *chosen*, by field.

    The stronger source wins; within a source, our name wins.

    Returns:
        Remarks for a person, a sentence each.

    Raises:
        InputError: an unsupported setting would leave containers broken.
    """
    sentences: list[str] = []
    for name, theirs in translated(nvidia).items():
        sentences += _put(chosen, name, theirs)
    if (asked := nvidia.get("pass-device-specs")) is not None:
        name = "device_list_strategy"
        usual = Given(value=default(name), origin="default", place=SettingSource.DEFAULT)
        before = chosen.get(name, usual)
        after, remark = with_device_specs(before, asked)
        if remark is not None:
            sentences.append(remark)
        if after is not before:
            chosen[name] = after
    if (policy := nvidia.get("shared-devices-allocation-policy")) is not None:
        shared = shared_placement(
            policy,
            _value(chosen, "resource_name"),
            _value(chosen, "mig_strategy"),
            _value(chosen, "time_slicing"),
        )
        if shared is None:
            sentences.append(f"{policy.origin} has no effect: nothing is shared")
        else:
            sentences += _put(chosen, "placement_policy", shared)
    return tuple(sentences)


def remarks(given: Mapping[str, Given]) -> Iterator[str]:
    """Yield a remark for each setting that is not followed, with the behaviour used instead."""
    for name in NAMES:
        value = given.get(name.name)
        if value is None or name.ours:
            continue
        if name.agrees is not None and value.value not in name.agrees:
            yield f"{value.origin} has no effect: {name.instead}"
    root = given.get("driver-root-ctr-path")
    if root is not None and root.value not in ("", "/") and _library(root) is None:
        yield f"{root.origin}: no {_LIBRARY} below {root.value}; the loader's own is used"
    socket = given.get("kubelet-socket")
    if socket is not None and not socket.value:
        yield f"{socket.origin}: {_SOCKET} is not spoken to; the plugin watcher must find us"
    for variable in (DISABLE, ENABLE):
        if (words := given.get(variable)) is not None:
            wrong = [word for word in _words(words) if word not in EVERY and _xid(word) is None]
            if wrong:
                yield f"{words.origin}: {', '.join(map(repr, wrong))} is no XID, and is ignored"


def translated(given: Mapping[str, Given]) -> dict[str, Given]:
    """Translate NVIDIA's settings *given* into ours, by field.

    :func:`join` handles those that also depend on our settings.

    Raises:
        InputError: an unsupported setting would leave containers broken.
    """
    strategies = given.get("device-list-strategy")
    if strategies is not None and (missing := set(strategies.value) - set(Strategy)):
        what = f"{', '.join(sorted(missing))} is not supported"
        raise InputError(f"{strategies.origin}: {what}", f"take some of {', '.join(Strategy)}")
    discovery = given.get("device-discovery-strategy")
    if discovery is not None and discovery.value == "tegra":
        raise InputError(f"{discovery.origin}: Tegra is not supported", "leave it at auto or nvml")

    slicing = given.get("sharing.timeSlicing")
    if slicing is not None and (problem := slicing.value.problem()):
        raise InputError(f"{slicing.origin}: {problem.cause}", problem.cure)

    ours = {field: given[name] for name, field in _SAME_VALUE.items() if name in given}
    for name, field in _ROOTS.items():
        if (root := given.get(name)) is not None and root.value:
            path = Path(root.value)
            if not path.is_absolute():
                raise InputError(f"{root.origin}: {root.value!r} is relative", "start it with /")
            ours[field] = replace(root, value=path)
    if (socket := given.get("kubelet-socket")) is not None:
        if socket.value:
            path = Path(socket.value)
            if path.name != _SOCKET or not path.is_absolute():
                what = f"{socket.value!r} is not the path of a {_SOCKET}"
                cure = f"the kubelet's socket is called {_SOCKET}"
                raise InputError(f"{socket.origin}: {what}", cure)
            ours["device_plugin_dir"] = replace(socket, value=path.parent)
        else:
            # NVIDIA's plugin serves its own sockets then and registers none of them
            # (internal/plugin/server.go), which leaves the kubelet's plugin watcher to find them.
            ours["registration"] = replace(socket, value="watcher")
    if (library := _library(given.get("driver-root-ctr-path"))) is not None:
        ours["nvml_library"] = library
    for name, field in _SAME_TEXT.items():
        if (text := given.get(name)) is None or not text.value:
            continue
        try:
            ours[field] = replace(text, value=option(field).read(text.value))
        except ValueError as error:
            what = f"{text.origin}: {text.value!r} is {error}"
            raise InputError(what, option(field).help) from None
    return {**ours, **translated_health(given)}


def translated_health(given: Mapping[str, Given]) -> dict[str, Given]:
    """Translate the two XID variables into our settings, by field.

    All XIDs disabled and none enabled is no health check at all. With some enabled, only those
    count, as NVIDIA's documentation says; v0.19.0 itself then checks nothing.
    """
    disabled, enabled = given.get(DISABLE), given.get(ENABLE)
    off, on = _xids(disabled), _xids(enabled)
    if disabled is not None and any(word in EVERY for word in _words(disabled)) and not on:
        return {"health_checks": replace(disabled, value=False)}
    classes = dict.fromkeys(off, HealthClass.APP)
    for code in on:
        usual = xid(code).kind
        classes[code] = HealthClass.RESET if usual in MILD else usual  # one that is Unhealthy
    origin = enabled if enabled is not None and on else disabled
    if origin is None or not classes:
        return {}
    value = XidClasses(MappingProxyType(dict(sorted(classes.items()))))
    return {"xid_classes": replace(origin, value=value)}


def with_device_specs(strategies: Given, asked: Given) -> tuple[Given, str | None]:
    """Apply ``pass-device-specs`` to *strategies*; return them with a remark or ``None``.

    NVIDIA's plugin hands over device nodes only with a strategy other than CDI, because CDI
    includes them (internal/plugin/server.go).
    """
    if not asked.value or "device-specs" in strategies.value:
        return strategies, None
    if all(word.startswith("cdi-") for word in strategies.value):
        return strategies, f"{asked.origin} has no effect: CDI brings the device nodes itself"
    if (
        strategies.is_ours
        and strategies.place >= asked.place
        and asked.place is not SettingSource.FLAG
    ):
        return strategies, f"{strategies.origin} wins over {asked.origin}: no device-specs"
    both = Given(
        value=(*strategies.value, "device-specs"),
        origin=f"{strategies.origin}, {asked.origin}",
        place=max(strategies.place, asked.place),
    )
    return both, None


def shared_placement(
    asked: Given, resource: str, mig_strategy: str, sliced: TimeSlicing | None
) -> Given | None:
    """Return the placement policies for ``shared-devices-allocation-policy``.

    NVIDIA's plugin follows it for replicas and MIG devices; whole GPUs are placed as usual.
    ``None`` where nothing is shared. A shared resource has its policy under the name that it
    had unshared.
    """
    names = list(sliced.replicas) if sliced is not None else []
    if mig_strategy == "single" and resource not in names:
        names.append(resource)
    families = (MIG_RESOURCES,) if mig_strategy == "mixed" else ()
    if not names and not families:
        return None
    policy = Policy(asked.value)
    value = PlacementPolicies(
        special=MappingProxyType(dict.fromkeys(sorted(names), policy)),
        families=MappingProxyType(dict.fromkeys(families, policy)),
    )
    return Given(value=value, origin=asked.origin, place=asked.place)


def _put(chosen: dict[str, Given], name: str, theirs: Given) -> Iterator[str]:
    """Set *name* to NVIDIA's value, unless ours was given in an equally strong source."""
    ours = chosen.get(name)
    if ours is None or theirs.place > ours.place:
        chosen[name] = theirs
    elif theirs.place == ours.place and ours.value != theirs.value:
        yield f"{ours.origin} wins over {theirs.origin}, which says otherwise"


def _value(chosen: Mapping[str, Given], name: str) -> Any:
    """Return the value of the field *name*, or its default."""
    return chosen[name].value if name in chosen else default(name)


def _library(root: Given | None) -> Given | None:
    """Return the library below the driver root; ``None`` where the loader should find it."""
    if root is None or root.value in ("", "/"):
        return None
    paths = (Path(root.value, directory, _LIBRARY) for directory in _LIBRARY_DIRS)
    library = next((path for path in paths if exists(path)), None)
    return None if library is None else replace(root, value=library)


def _xids(variable: Given | None) -> Iterable[int]:
    if variable is None:
        return ()
    words = _words(variable)
    if any(word in EVERY for word in words):
        return range(1, LAST_XID + 1)
    return [code for code in map(_xid, words) if code is not None]


def _words(variable: Given) -> list[str]:
    words = (word.strip() for word in str(variable.value).lower().split(","))
    return [word for word in words if word]


def _xid(word: str) -> int | None:
    is_number = is_digits(word) and len(word) <= 4
    return int(word) if is_number and 1 <= int(word) <= LAST_XID else None
