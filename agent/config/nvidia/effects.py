"""What NVIDIA's settings come to here: settings of ours, remarks, and refusals."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agent.allocation.rules import Policy
from agent.config.nvidia.names import NAMES, Name
from agent.config.origin import Given, Place
from agent.config.policies import LAST_XID, PlacementPolicies, TimeSlicing, XidClasses
from agent.config.settings import Settings, option
from agent.deviceplugin.settings import Strategy
from agent.errors import InputError
from agent.health.status import HealthClass
from agent.health.xid import xid

# NVIDIA's two variables about health checks, as classes of XIDs.
#
# ``DP_DISABLE_HEALTHCHECKS`` names XIDs that leave a GPU healthy, ``DP_ENABLE_HEALTHCHECKS`` XIDs
# that do not, and the second wins; ``all`` and ``xids`` both stand for every XID, and what is no
# XID is ignored (k8s-device-plugin v0.19.0, internal/rm/health.go).

DISABLE, ENABLE = "DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS"


EVERY = ("all", "xids")
"""Either of them stands for every XID."""


MILD = (HealthClass.APP, HealthClass.DEGRADED)
"""Classes that leave a GPU Healthy."""


def translated_health(given: Mapping[str, Given]) -> dict[str, Given]:
    """Return the settings of ours that the two variables stand for, by field.

    All XIDs disabled and none enabled is no health check at all. With some enabled, only those
    count: that is what NVIDIA's documentation says; v0.19.0 itself then checks nothing.
    """
    disabled, enabled = given.get(DISABLE), given.get(ENABLE)
    off, on = _xids(disabled), _xids(enabled)
    if disabled is not None and _is_all(disabled) and not on:
        return {"health_checks": replace(disabled, value=False)}
    classes = dict.fromkeys(off, HealthClass.APP) | {code: _unhealthy(code) for code in on}
    origin = enabled if enabled is not None and on else disabled
    if origin is None or not classes:
        return {}
    value = XidClasses(MappingProxyType(dict(sorted(classes.items()))))
    return {"xid_classes": replace(origin, value=value)}


def health_remarks(given: Mapping[str, Given]) -> Iterator[str]:
    """Yield a sentence for each word that stands for no XID."""
    for name in (DISABLE, ENABLE):
        found = given.get(name)
        if found is None:
            continue
        wrong = [word for word in _words(found) if word not in EVERY and _xid(word) is None]
        if wrong:
            yield f"{found.origin}: {', '.join(map(repr, wrong))} is no XID, and is ignored"


def _unhealthy(code: int) -> HealthClass:
    """Return a class that makes a GPU Unhealthy: the usual one of XID *code*, or else a reset."""
    usual = xid(code).kind
    return HealthClass.RESET if usual in MILD else usual


def _xids(found: Given | None) -> Iterable[int]:
    if found is None:
        return ()
    if _is_all(found):
        return range(1, LAST_XID + 1)
    return [code for code in map(_xid, _words(found)) if code is not None]


def _is_all(found: Given) -> bool:
    return any(word in EVERY for word in _words(found))


def _words(found: Given) -> list[str]:
    words = (word.strip() for word in str(found.value).lower().split(","))
    return [word for word in words if word]


def _xid(word: str) -> int | None:
    is_number = word.isascii() and word.isdecimal() and len(word) <= 4
    return int(word) if is_number and 1 <= int(word) <= LAST_XID else None


MIG_RESOURCES = "nvidia.com/mig-"
"""How the resources of MIG devices begin under the strategy ``mixed``."""


_AS_IT_IS: Mapping[str, str] = MappingProxyType(
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
"""Settings whose value is that of ours, by NVIDIA's name."""


_READ_AS_OURS: Mapping[str, str] = MappingProxyType(
    {
        "cdi-annotation-prefix": "cdi_annotation_prefix",
        "CONFIG_FILE_SRCDIR": "config_dir",
        "NODE_LABEL": "config_label",
        "DEFAULT_CONFIG": "default_config",
    }
)
"""Texts that our own reader takes, by NVIDIA's name."""


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


def translated(given: Mapping[str, Given]) -> dict[str, Given]:
    """Return the settings of ours that NVIDIA's settings *given* stand for, by field.

    Those that depend on settings of ours too are the functions below.

    Raises:
        InputError: one asks for what would be missed in every container.
    """
    _refuse(given)
    found = {field: given[name] for name, field in _AS_IT_IS.items() if name in given}
    found.update(
        (field, value)
        for field, value in (
            ("driver_root", _root(given, "nvidia-driver-root")),
            ("dev_root", _root(given, "nvidia-dev-root")),
            ("cdi_hook", _root(given, "nvidia-cdi-hook-path")),
            ("device_plugin_dir", _device_plugin_dir(given.get("kubelet-socket"))),
            ("registration", _registration(given.get("kubelet-socket"))),
            ("nvml_library", _library(given.get("driver-root-ctr-path"))),
        )
        if value is not None
    )
    return {**found, **dict(_read_as_ours(given)), **translated_health(given)}


def remarks(given: Mapping[str, Given]) -> Iterator[str]:
    """Yield a sentence for each setting that is not followed, with what happens instead."""
    for name in NAMES:
        value = given.get(name.name)
        if value is not None and not name.ours and not _agrees(name, value):
            yield f"{value.origin} has no effect: {name.instead}"
    root = given.get("driver-root-ctr-path")
    if root is not None and root.value not in ("", "/") and _library(root) is None:
        yield f"{root.origin}: no {_LIBRARY} below {root.value}; the loader's own is used"
    socket = given.get("kubelet-socket")
    if socket is not None and not socket.value:
        yield f"{socket.origin}: {_SOCKET} is not spoken to; the plugin watcher must find us"
    yield from health_remarks(given)


def with_device_specs(strategies: Given, asked: Given) -> tuple[Given, str | None]:
    """Return *strategies* with what ``pass-device-specs`` asks for, and a remark or ``None``.

    NVIDIA's plugin hands over device nodes only beside a strategy other than CDI's, because
    CDI brings them (internal/plugin/server.go).
    """
    if not asked.value or "device-specs" in strategies.value:
        return strategies, None
    if all(word.startswith("cdi-") for word in strategies.value):
        return strategies, f"{asked.origin} has no effect: CDI brings the device nodes itself"
    if strategies.is_ours and strategies.place >= asked.place and asked.place is not Place.FLAG:
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


def _read_as_ours(given: Mapping[str, Given]) -> Iterator[tuple[str, Given]]:
    for name, field in _READ_AS_OURS.items():
        found = given.get(name)
        if found is None or not found.value:
            continue
        try:
            yield field, replace(found, value=option(field).read(found.value))
        except ValueError as error:
            what = f"{found.origin}: {found.value!r} is {error}"
            raise InputError(what, option(field).help) from None


def _agrees(name: Name, given: Given) -> bool:
    return name.agrees is None or given.value in name.agrees


def _refuse(given: Mapping[str, Given]) -> None:
    strategies = given.get("device-list-strategy")
    if strategies is not None and (missing := set(strategies.value) - set(Strategy)):
        what = f"{', '.join(sorted(missing))} is not supported"
        raise InputError(f"{strategies.origin}: {what}", f"take some of {', '.join(Strategy)}")
    discovery = given.get("device-discovery-strategy")
    if discovery is not None and discovery.value == "tegra":
        raise InputError(f"{discovery.origin}: Tegra is not supported", "leave it at auto or nvml")


def _root(given: Mapping[str, Given], name: str) -> Given | None:
    """Return the path of *name*; ``None`` where it has none, which is as good as not set."""
    found = given.get(name)
    if found is None or not found.value:
        return None
    path = Path(found.value)
    if not path.is_absolute():
        raise InputError(f"{found.origin}: {found.value!r} is relative", "start it with /")
    return replace(found, value=path)


def _device_plugin_dir(found: Given | None) -> Given | None:
    if found is None or not found.value:
        return None
    path = Path(found.value)
    if path.name != _SOCKET or not path.is_absolute():
        what = f"{found.value!r} is not the path of a {_SOCKET}"
        raise InputError(f"{found.origin}: {what}", f"the kubelet's socket is called {_SOCKET}")
    return replace(found, value=path.parent)


def _registration(found: Given | None) -> Given | None:
    """Return the way that speaks to no socket, if that is empty.

    NVIDIA's plugin serves its own sockets then and registers none of them
    (internal/plugin/server.go), which leaves the kubelet's plugin watcher to find them.
    """
    if found is None or found.value:
        return None
    return replace(found, value="watcher")


def _library(found: Given | None) -> Given | None:
    """Return the library below the driver root; ``None`` where the loader is to find it."""
    if found is None or found.value in ("", "/"):
        return None
    for directory in _LIBRARY_DIRS:
        path = Path(found.value, directory, _LIBRARY)
        if path.exists():
            return replace(found, value=path)
    return None


# NVIDIA's settings put beside ours: the stronger place counts, and in one place our name.


def join(chosen: dict[str, Given], nvidia: Mapping[str, Given]) -> tuple[str, ...]:
    """Put what *nvidia* says, by NVIDIA's name, into our settings *chosen*, by field.

    Returns:
        What a person should know, a sentence each.

    Raises:
        InputError: it asks for what would be missed in every container.
    """
    return tuple(_join(chosen, nvidia))


def _join(chosen: dict[str, Given], nvidia: Mapping[str, Given]) -> Iterator[str]:
    for name, theirs in translated(nvidia).items():
        yield from _put(chosen, name, theirs)
    if (asked := nvidia.get("pass-device-specs")) is not None:
        yield from _put_device_specs(chosen, asked)
    if (policy := nvidia.get("shared-devices-allocation-policy")) is not None:
        shared = shared_placement(
            policy,
            _value(chosen, "resource_name"),
            _value(chosen, "mig_strategy"),
            _value(chosen, "time_slicing"),
        )
        if shared is None:
            yield f"{policy.origin} has no effect: nothing is shared"
        else:
            yield from _put(chosen, "placement_policy", shared)


def _put(chosen: dict[str, Given], name: str, theirs: Given) -> Iterator[str]:
    """Set *name* to NVIDIA's value, unless ours stands in a place as strong."""
    ours = chosen.get(name)
    if ours is None or theirs.place > ours.place:
        chosen[name] = theirs
    elif theirs.place == ours.place and ours.value != theirs.value:
        yield f"{ours.origin} wins over {theirs.origin}, which says otherwise"


def _put_device_specs(chosen: dict[str, Given], asked: Given) -> Iterator[str]:
    name = "device_list_strategy"
    default = Given(value=_value(chosen, name), origin="default", place=Place.DEFAULT)
    before = chosen.get(name, default)
    after, remark = with_device_specs(before, asked)
    if remark is not None:
        yield remark
    if after is not before:
        chosen[name] = after


def _value(chosen: Mapping[str, Given], name: str) -> Any:
    """Return the value of the field *name*, or its default."""
    if name in chosen:
        return chosen[name].value
    return next(field.default for field in fields(Settings) if field.name == name)
