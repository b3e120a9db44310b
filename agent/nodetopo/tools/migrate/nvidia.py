"""NVIDIA's settings, judged one by one with the daemon's own parser.

Names, effects and replacements are defined in :mod:`nodetopo.kernel.settings.nvidia`; here the
effect of a setting is the difference that it makes to :func:`effects.join`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from nodetopo.deviceplugin.settings import PluginSettings, Strategy, start_warnings
from nodetopo.errors import InputError
from nodetopo.kernel.settings.declare import default, key
from nodetopo.kernel.settings.nvidia import effects
from nodetopo.kernel.settings.nvidia.names import BY_NAME, NAMES, Name, ValueKind
from nodetopo.kernel.settings.origin import Given, SettingSource
from nodetopo.kernel.settings.values import shown
from nodetopo.tools.migrate.findings import Finding, Plan, Verdict

PLUGIN = "NVIDIA's device plugin"

_CHART_DRIVER_ROOT = "/driver-root"
"""Where NVIDIA's programs look for the driver inside their container
(api/config/v1/consts.go DefaultContainerDriverRoot)."""

_NEVER_WRITTEN = ("config_dir", "nvml_library")
"""Settings, by field, with paths inside a container, which differ between programs; here a
component defines them.
"""


def _any(value: Any) -> bool:
    return bool(value)


_COMPONENTS: Mapping[str, tuple[tuple[Callable[[Any], bool], str], ...]] = MappingProxyType(
    {
        "mig_strategy": ((lambda word: word != "none", "mig-access"),),
        "device_list_strategy": (
            (lambda words: Strategy.DEVICE_SPECS in words, "host-devices"),
            (lambda words: any(word.startswith("cdi-") for word in words), "cdi"),
        ),
        "gdrcopy": ((_any, "host-devices"),),
        "gds": ((_any, "host-devices"),),
        "mofed": ((_any, "host-devices"),),
        "imex_channels": ((_any, "host-devices"),),
        "registration": ((lambda word: word == "watcher", "plugins-registry"),),
        "config_dir": ((_any, "named-config"),),
    }
)
"""Components that a setting needs, by field: a test of the value, and the component."""


class Setting(Struct, frozen=True, kw_only=True):
    """One of NVIDIA's settings with its location."""

    # file, line, program, written: as in `Finding`
    file: str
    line: int
    program: str
    written: str
    name: Name
    given: Mapping[str, Given]  # by NVIDIA's name, one entry; empty if nothing is set
    # Why NVIDIA's program would refuse the value; None if it would not.
    problem: InputError | None = None
    is_kept: bool = False  # nodetopo reads this line itself, from a file of `version: v1`


def judged(settings: Iterable[Setting], around: Mapping[str, Given]) -> Iterator[Finding]:
    """Yield the verdict on each of the *settings* of one source."""
    place = list(settings)
    own = {name: given for setting in place for name, given in setting.given.items()}
    everything = {**defaults(), **around, **own}
    try:
        effects.join({}, everything)
    except InputError:
        everything = {}
    for setting in place:
        yield _judged(setting, {**everything, **setting.given})


def defaults() -> Mapping[str, Given]:
    """Return the defaults of NVIDIA's plugin that differ from ours, by NVIDIA's name.

    Source: k8s-device-plugin v0.20.0, cmd/nvidia-device-plugin/main.go.
    """
    values = {
        "device-list-strategy": (Strategy.ENVVAR.value,),
        "shared-devices-allocation-policy": "distributed",
    }
    return {
        name: Given(value=value, origin="NVIDIA's default", place=SettingSource.DEFAULT)
        for name, value in values.items()
    }


def merged(one: Mapping[str, Given], other: Mapping[str, Given]) -> dict[str, Given]:
    """Return the stronger of two places for each setting; *one* where both are as strong."""
    both = dict(one)
    for name, given in other.items():
        if name not in both or given.place > both[name].place:
            both[name] = given
    return both


def translated(given: Mapping[str, Given]) -> dict[str, Given]:
    """Return our settings for *given*, by field; empty if refused."""
    chosen: dict[str, Given] = {}
    try:
        effects.join(chosen, given)
    except InputError:
        return {}
    return {name: value for name, value in chosen.items() if name not in _NEVER_WRITTEN}


def missing(file: str, plan: Plan) -> Iterator[Finding]:
    """Yield differences caused by unset settings: :func:`defaults` that take effect.

    Args:
        file: where the plugin was found first.
    """
    means = {
        "device-list-strategy": (
            "NVIDIA's device plugin takes envvar, nodetopo "
            f"{shown(default('device_list_strategy'))}"
        ),
        "shared-devices-allocation-policy": (
            "NVIDIA's device plugin distributes replicas and MIG devices over the GPUs, nodetopo "
            "places them by placement-policy like all others"
        ),
    }
    for named in plan.named.values() or [{}]:
        given = merged(plan.base, named)
        both = merged(given, defaults())
        for name in [name for name in means if name not in given]:
            field = BY_NAME[name].ours[0]
            before = translated({word: it for word, it in both.items() if word != name})
            after = translated(both)
            if field not in after or after[field] == before.get(field):
                continue
            yield Finding(
                file=file,
                line=None,
                program=PLUGIN,
                written=f"{name} is not set",
                verdict=Verdict.DIFFERS,
                means=f"{means.pop(name)}; set it to keep NVIDIA's way",
                settings={key(field): shown(after[field].value)},
            )


def known() -> Mapping[str, Name]:
    """Return every setting by each of its names: ``--flag``, ``VARIABLE``, ``path.in.file``."""
    return {word: name for name in NAMES for word in name.all_names()}


def _judged(setting: Setting, together: Mapping[str, Given]) -> Finding:
    verdict, means, settings, components = _effect(setting, together)
    return Finding(
        file=setting.file,
        line=setting.line,
        program=setting.program,
        written=setting.written,
        verdict=verdict,
        means=means,
        settings={key(field): shown(value) for field, value in settings.items()},
        components=components,
    )


_Effect = tuple[Verdict, str, Mapping[str, object], tuple[str, ...]]


def _effect(setting: Setting, together: Mapping[str, Given]) -> _Effect:
    """Return the verdict with its meaning, the settings by field, and the components."""
    name = setting.name
    if setting.problem is not None:
        text = str(setting.problem)
        is_mps = name.kind is ValueKind.MPS
        means = text if is_mps else f"NVIDIA's program refuses it, too: {text}"
        return Verdict.NOT_SUPPORTED, means, {}, ()
    given = setting.given.get(name.name)
    if given is None:
        return Verdict.IGNORED, "nothing is set", {}, ()
    if name.name == "driver-root-ctr-path":
        return _driver_root_in_container(given)
    try:
        without = {word: value for word, value in together.items() if word != name.name}
        before: dict[str, Given] = {}
        after: dict[str, Given] = {}
        earlier = effects.join(before, without)
        sentences = [text for text in effects.join(after, together) if text not in earlier]
    except InputError as error:
        return Verdict.NOT_SUPPORTED, str(error), {}, ()
    remarks = [_about(text, given) for text in effects.remarks(setting.given)]
    ours = {field: after[field].value for field in name.ours if field in after}
    if not name.ours:
        if name.agrees is None or name.kind is ValueKind.RESOURCES:
            return Verdict.IGNORED, name.instead, {}, ()
        if remarks:
            return Verdict.DIFFERS, "; ".join(remarks), {}, ()
        return Verdict.SAME, name.instead or "this is what happens here", {}, ()
    if sentences or not ours:
        texts = [_about(text, given) for text in sentences] or remarks
        return Verdict.IGNORED, "; ".join(texts) or "an empty one counts as not set", {}, ()
    return _set(setting, ours, remarks)


def _set(setting: Setting, ours: Mapping[str, object], remarks: list[str]) -> _Effect:
    """Return the effect of a setting that sets *ours*, by field."""
    components = tuple(
        dict.fromkeys(
            component
            for field, value in ours.items()
            for is_needed, component in _COMPONENTS.get(field, ())
            if is_needed(value)
        )
    )
    texts = list(remarks)
    if "device_list_strategy" in ours:
        strategies: Any = ours["device_list_strategy"]
        plugin = PluginSettings(strategies=tuple(map(Strategy, strategies)))
        texts += start_warnings(plugin)
        if "cdi" in components:
            texts.append(
                "NVIDIA's device plugin writes the CDI specification itself; here component cdi "
                "does, unless nvidia-ctk writes one on the node; it calls NVIDIA's hooks that the "
                "node's nvidia-cdi-hook has (enable-cuda-compat, for images of a newer CUDA than "
                "the driver's, since toolkit 1.17.5), except those of cdi-disable-hooks"
            )
    written = {field: value for field, value in ours.items() if field not in _NEVER_WRITTEN}
    is_default = all(value == default(field) for field, value in ours.items())
    if setting.is_kept:
        if not components:
            return Verdict.SAME, "; ".join(["read from this file as it is", *texts]), written, ()
        means = "; ".join(["read from this file as it is, and needs the component", *texts])
        return Verdict.SET, means, written, components
    if is_default and not components:
        names = " and ".join(key(field) for field in ours)
        return Verdict.SAME, "; ".join([f"the default of {names}", *texts]), {}, ()
    how = "as a setting, or under NVIDIA's name"
    return (
        Verdict.SET,
        "; ".join([how if written else "by the component", *texts]),
        written,
        components,
    )


def _driver_root_in_container(given: Given) -> _Effect:
    """Judge the driver's location in the container: the mounts decide."""
    if given.value in ("", "/"):
        return Verdict.SAME, "the loader's own library is used", {}, ()
    if given.value == _CHART_DRIVER_ROOT:
        means = "NVIDIA's default; NVIDIA's runtime puts the library into nodetopo's container"
        return Verdict.SAME, means, {}, ()
    means = (
        "read under NVIDIA's name, for the library below it; mount the driver there, or leave it "
        "out where NVIDIA's runtime starts nodetopo"
    )
    return Verdict.SET, means, {}, ()


def _about(text: str, given: Given) -> str:
    """Return *text* without the origin that it begins with; the finding has the place."""
    return text.removeprefix(given.origin).removeprefix(":").strip()
