"""The settings from five sources, each value with its origin.

Defaults < file (YAML) < named file < environment < flags, and in each source NVIDIA's name of a
setting < ours.
"""

import os
import re
import reprlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.allocation.rules import Model
from nodetopo.deviceplugin.cdi import KIND, written_kind
from nodetopo.deviceplugin.settings import PluginSettings, Strategy, start_warnings
from nodetopo.errors import InputError
from nodetopo.kernel.components import COMPONENTS, part
from nodetopo.kernel.settings.declare import PREFIX, Settings, key, option, options, variable
from nodetopo.kernel.settings.nvidia import effects
from nodetopo.kernel.settings.nvidia import file as nvidia_file
from nodetopo.kernel.settings.origin import ConfigFile, FileContents, Given, SettingSource
from nodetopo.kernel.settings.own import IN_CLUSTER
from nodetopo.kernel.settings.values import did_you_mean

if TYPE_CHECKING:
    from nodetopo.formats.document import Value

CONFIG_VARIABLE = "NODETOPO_CONFIG"
"""Names the file."""

CHOOSING = (
    "node_name",
    "kubeconfig",
    "config_dir",
    "config_label",
    "default_config",
    "config_fallbacks",
)
"""Settings that choose a named config, by field."""

_NO_SETTINGS = (
    CONFIG_VARIABLE,
    "NODETOPO_FAKE_NVML",
    "NODETOPO_CORPUS",
    "NODETOPO_LAB_KUBERNETES",
    "NODETOPO_NIGHTLY",
)
"""Variables with our prefix that are not settings: the file, and those that only tests read."""

_SERVICE_LINK = re.compile(
    r"NODETOPO_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_\w+)?)?)",
)
"""Variables the kubelet adds for every Service of the namespace (``enableServiceLinks``);
a Service called ``nodetopo`` must not stop the daemon."""

_CURE = "`nodetopo run --help` lists all settings"


class Resolved(Struct, frozen=True, kw_only=True):
    """Settings, and the source of each value."""

    settings: Settings
    origins: Mapping[str, str]  # by field name
    nvidia: Mapping[str, Given]  # the settings given under NVIDIA's names, by that name
    warnings: tuple[str, ...]  # for a person before the daemon starts, a sentence each

    @classmethod
    def of(
        cls,
        *,
        flags: Mapping[str, object],
        environment: Mapping[str, str],
        file: ConfigFile | None = None,
        named: ConfigFile | None = None,
        nvidia_flags: Mapping[str, str] | None = None,
        fixed: Mapping[str, Given] = MappingProxyType({}),
    ) -> Self:
        """Join the sources; later ones override earlier ones.

        *flags* holds only those that were given, by field name; *nvidia_flags* by NVIDIA's name.
        *named* is the node's chosen config, which overrides *file*; *fixed* has values, already
        read, that override all sources before any other value is derived from them. Only our
        variables, NVIDIA's, ``NODE_NAME`` and ``KUBERNETES_SERVICE_HOST`` count in *environment*.

        Raises:
            InputError: an unknown name, or an invalid value.
        """
        contents = _contents(file, named)
        nvidia = nvidia_file.joined(nvidia_flags or {}, environment, contents.nvidia)
        warnings = [*contents.warnings, *effects.remarks(nvidia)]

        given = dict(contents.ours)
        given.update(_environment(environment))
        for name, text in flags.items():
            origin = f"flag --{key(name)}"
            given[name] = Given(value=text, origin=origin, place=SettingSource.FLAG, is_ours=True)
        for name, raw in given.items():
            try:
                given[name] = replace(raw, value=option(name).read(raw.value))
            except ValueError as error:
                shown = reprlib.repr(raw.value)
                raise InputError(f"{raw.origin}: {shown} is {error}", option(name).help) from None
        chosen = _with_derived({**given, **fixed}, environment)
        _check_one_machine(chosen)
        warnings += effects.join(chosen, nvidia)
        _complete(chosen)
        warnings += _strategy_warnings(chosen, is_nvidias=contents.is_nvidias or bool(nvidia))
        return cls(
            settings=Settings(**{name: value.value for name, value in chosen.items()}),
            origins={
                name: chosen[name].origin if name in chosen else "default" for name in options()
            },
            nvidia=nvidia,
            warnings=tuple(dict.fromkeys(warnings)),
        )


def read(file: ConfigFile) -> FileContents:
    """Return the settings in *file*: ours, NVIDIA's, or NVIDIA's with ours below ``nodetopo:``.

    The values under our names are not parsed yet.

    Raises:
        InputError: it has another form.
    """
    # PyYAML, which only a file needs.
    from nodetopo.formats.document import read_configuration  # noqa: PLC0415

    root, warnings = read_configuration(file.name, file.text)
    if root is None:
        return FileContents(warnings=warnings)
    section: Value | None = root
    theirs = None
    if nvidia_file.is_nvidias(root):
        theirs = nvidia_file.read(root, file.place)
        warnings = (*warnings, *theirs.warnings)
        section = theirs.ours
    ours = {}
    if section is not None:
        by_key = {key(name): name for name in options()}
        for word, value in section.entries().items():
            if word not in by_key:
                close = did_you_mean(word, tuple(by_key))
                value.refuse("unknown key", close.lstrip("; ") or _CURE)
            ours[by_key[word]] = Given(
                value=value.plain(), origin=value.origin, place=file.place, is_ours=True
            )
        warnings = (*warnings, *section.repeated())
    return FileContents(
        ours=ours,
        nvidia={} if theirs is None else theirs.given,
        warnings=warnings,
        is_nvidias=theirs is not None,
    )


def _contents(file: ConfigFile | None, named: ConfigFile | None) -> FileContents:
    """Return the settings of two files; *named* overrides *file*."""
    lower = FileContents() if file is None else read(file)
    upper = FileContents() if named is None else read(named)
    for name in CHOOSING:
        if (given := upper.ours.get(name)) is not None:
            cure = "set it in the file of --config, in the environment or as a flag"
            raise InputError(f"{given.origin}: a named config cannot set {key(name)}", cure)
    return FileContents(
        ours={**lower.ours, **upper.ours},
        nvidia={**lower.nvidia, **upper.nvidia},
        warnings=(*lower.warnings, *upper.warnings),
        is_nvidias=lower.is_nvidias or upper.is_nvidias,
    )


def _environment(environment: Mapping[str, str]) -> Iterator[tuple[str, Given]]:
    """Yield the settings in our variables; an empty variable is unset."""
    by_variable = {variable(name): name for name in options()}
    for word in sorted(environment):
        is_ours = word.startswith(PREFIX) and word not in _NO_SETTINGS
        if not is_ours or _SERVICE_LINK.fullmatch(word) or not environment[word]:
            continue
        if word not in by_variable:
            close = did_you_mean(word, tuple(by_variable)).lstrip("; ")
            raise InputError(f"unknown environment variable: {word!r}", close or _CURE)
        origin = f"environment {word}"
        given = Given(
            value=environment[word], origin=origin, place=SettingSource.ENVIRONMENT, is_ours=True
        )
        yield by_variable[word], given


def _with_derived(given: Mapping[str, Given], environment: Mapping[str, str]) -> dict[str, Given]:
    """Return *given* and the settings whose default depends on where the daemon runs."""
    # The kubelet lower-cases the host name to name its Node (pkg/util/node GetHostname).
    node = environment.get("NODE_NAME")
    is_in_cluster = IN_CLUSTER in environment
    kubeconfig = given.get("kubeconfig")
    derived: dict[str, tuple[object, str]] = {
        "node_name": (
            node or os.uname().nodename.lower(),
            "environment NODE_NAME" if node else "host name",
        ),
        "publish_labels": (
            is_in_cluster or (kubeconfig is not None and kubeconfig.value is not None),
            "default, in a cluster" if is_in_cluster else "default",
        ),
    }
    for name in COMPONENTS:
        if (of_component := getattr(part(name, "settings"), "derived", None)) is not None:
            derived |= of_component(environment)
    labels = given.get("publish_labels")
    publishes = derived["publish_labels"][0] if labels is None else labels.value
    derived["publish_events"] = publishes, "default, as publish-labels"
    defaults = {
        name: Given(value=value, origin=origin, place=SettingSource.DEFAULT)
        for name, (value, origin) in derived.items()
        if name in options()
    }
    return {**defaults, **given}


def _check_one_machine(chosen: dict[str, Given]) -> None:
    """Let the stronger source choose the simulated machine; one source must not name two."""
    machine, snapshot = chosen.get("machine"), chosen.get("snapshot")
    if machine is None or snapshot is None or None in (machine.value, snapshot.value):
        return
    if machine.place == snapshot.place:
        raise InputError("both a machine and a snapshot are set", "keep one of the two")
    del chosen["machine" if machine.place < snapshot.place else "snapshot"]


def _complete(chosen: dict[str, Given]) -> None:
    """Set the omitted settings that follow from given ones."""
    model = chosen.get("bandwidth_model")
    if model is not None and model.value == Model.TABLE and "bandwidth_table" not in chosen:
        raise InputError(
            f"{model.origin}: the model `table` needs measured bandwidths",
            f"set {key('bandwidth_table')}, or another model",
        )
    written, dra = chosen.get("cdi_spec"), chosen.get("dra")
    if dra is not None and dra.value:
        if written is not None and written.value != "write":
            raise InputError(
                f"{dra.origin}: DRA hands devices over by our CDI specification, and "
                f"{written.origin} says {key('cdi_spec')} is {written.value}",
                f"leave {key('cdi_spec')} out, or turn {key('dra')} off",
            )
        written = written or replace(dra, value="write", origin=f"{dra.origin}, as dra is on")
        chosen["cdi_spec"] = written
    if written is None or written.value != "write":
        return
    kind = chosen.get("cdi_kind") or Given(
        value=KIND, origin="default", place=SettingSource.DEFAULT
    )
    try:
        value = written_kind(kind.value)
    except InputError as error:
        raise InputError(f"{kind.origin}: {error.cause}", error.cure) from None
    origin = kind.origin if value == kind.value else f"{kind.origin}, as cdi-spec is write"
    chosen["cdi_kind"] = replace(kind, value=value, origin=origin)


def _strategy_warnings(chosen: Mapping[str, Given], *, is_nvidias: bool) -> Iterator[str]:
    """Yield a sentence for each thing to know about how devices are handed over."""
    given, prefix = chosen.get("device_list_strategy"), chosen.get("cdi_annotation_prefix")
    if given is not None:
        settings = PluginSettings(strategies=tuple(map(Strategy, given.value)))
        if prefix is not None:
            settings = replace(settings, annotation_prefix=prefix.value)
        yield from (f"{given.origin}: {text}" for text in start_warnings(settings))
    elif is_nvidias:
        yield (
            "device-list-strategy is not set: it is chosen by what the node is set up for, where"
            " NVIDIA's device plugin takes envvar"
        )
