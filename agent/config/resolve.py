"""Settings out of five places, each value with its origin.

Defaults < file (YAML) < named file < environment < flags, and in each place NVIDIA's name of a
setting < ours.
"""

import os
import re
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Self

from agent.allocation.rules import Model
from agent.config.document import Value, load
from agent.config.nvidia import effects
from agent.config.nvidia import file as nvidia
from agent.config.nvidia import file as places
from agent.config.nvidia.effects import join
from agent.config.origin import ConfigFile, FileContents, Given, Place
from agent.config.settings import PREFIX, Settings, key, option, options, variable
from agent.config.values import did_you_mean
from agent.deviceplugin.cdi import KIND, written_kind
from agent.deviceplugin.settings import PluginSettings, Strategy, start_warnings
from agent.errors import InputError
from agent.publish.labels.output import own_namespace

# The configuration file: ours, NVIDIA's, or NVIDIA's with ours below ``nodetopo:``.

_CURE = "`nodetopo run --help` lists all settings"


def read(file: ConfigFile) -> FileContents:
    """Return what *file* sets; the values under our names are not read yet.

    Raises:
        InputError: it is no such file.
    """
    root, warnings = load(file.name, file.text)
    if root is None:
        return FileContents(warnings=warnings)
    if not nvidia.is_nvidias(root):
        ours = _file_ours(root, file.place)
        return FileContents(ours=ours, warnings=(*warnings, *root.repeated()))
    theirs = nvidia.read(root, file.place)
    own_warnings = () if theirs.ours is None else tuple(theirs.ours.repeated())
    return FileContents(
        ours={} if theirs.ours is None else _file_ours(theirs.ours, file.place),
        nvidia=theirs.given,
        warnings=(*warnings, *theirs.warnings, *own_warnings),
        is_nvidias=True,
    )


def _file_ours(section: Value, place: Place) -> Mapping[str, Given]:
    by_key = {key(name): name for name in options()}
    found: dict[str, Given] = {}
    for word, value in section.entries().items():
        if word not in by_key:
            close = did_you_mean(word, tuple(by_key))
            value.refuse("unknown key", close.lstrip("; ") or _CURE)
        found[by_key[word]] = Given(
            value=value.plain(), origin=value.origin, place=place, is_ours=True
        )
    return found


CONFIG_VARIABLE = "NODETOPO_CONFIG"
"""Names the file."""


_NO_SETTINGS = (CONFIG_VARIABLE, "NODETOPO_FAKE_NVML", "NODETOPO_CORPUS")
"""Variables of ours that are none: the file, and two that only the tests' own parts read."""


_SERVICE_LINK = re.compile(
    r"NODETOPO_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)",
)
"""Variables the kubelet adds for every Service of the namespace (``enableServiceLinks``);
a Service called ``nodetopo`` must not stop the daemon."""


CHOOSING = (
    "node_name",
    "kubeconfig",
    "config_dir",
    "config_label",
    "default_config",
    "config_fallbacks",
)
"""Settings by which a named config is chosen, by field."""


_NO_FILE = FileContents()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """Settings, and where each value comes from.

    Attributes:
        origins: by field name.
        nvidia: the settings that were given under NVIDIA's names, by that name.
        warnings: what a person should know before the daemon starts, a sentence each.
    """

    settings: Settings
    origins: Mapping[str, str]
    nvidia: Mapping[str, Given]
    warnings: tuple[str, ...]

    @classmethod
    def of(
        cls,
        *,
        flags: Mapping[str, object],
        environment: Mapping[str, str],
        file: ConfigFile | None = None,
        named: ConfigFile | None = None,
        nvidia_flags: Mapping[str, str] | None = None,
    ) -> Self:
        """Join the sources, later ones over earlier ones.

        *flags* holds only what was given, by field name; *nvidia_flags* by NVIDIA's name. *named*
        is the config that the node takes of several, over that of the *file*. Other
        variables than ours and NVIDIA's are ignored in *environment*, apart from ``NODE_NAME``
        and ``KUBERNETES_SERVICE_HOST``.

        Raises:
            InputError: an unknown name, or a value that does not fit.
        """
        contents = _both(_contents(file), _contents(named))
        nvidia = places.joined(nvidia_flags or {}, environment, contents.nvidia)
        warnings = [*contents.warnings, *effects.remarks(nvidia)]
        chosen = _with_derived(_ours(flags, environment, contents), environment)
        _check_one_machine(chosen)
        warnings += join(chosen, nvidia)
        _check_table(chosen)
        _follow(chosen)
        warnings += _about_strategies(chosen, is_nvidias=contents.is_nvidias or bool(nvidia))
        return cls(
            settings=Settings(**{name: given.value for name, given in chosen.items()}),
            origins={
                item.name: chosen[item.name].origin if item.name in chosen else "default"
                for item in fields(Settings)
            },
            nvidia=nvidia,
            warnings=tuple(dict.fromkeys(warnings)),
        )


def _contents(file: ConfigFile | None) -> FileContents:
    if file is None:
        return _NO_FILE

    return read(file)


def _both(file: FileContents, named: FileContents) -> FileContents:
    """Return what two files set, those of *named* over the others.

    Raises:
        InputError: *named* sets what it was chosen by.
    """
    for name in CHOOSING:
        if (given := named.ours.get(name)) is not None:
            cure = "set it in the file of --config, in the environment or as a flag"
            raise InputError(f"{given.origin}: a named config cannot set {key(name)}", cure)
    return FileContents(
        ours={**file.ours, **named.ours},
        nvidia={**file.nvidia, **named.nvidia},
        warnings=(*file.warnings, *named.warnings),
        is_nvidias=file.is_nvidias or named.is_nvidias,
    )


def _ours(
    flags: Mapping[str, object], environment: Mapping[str, str], contents: FileContents
) -> dict[str, Given]:
    """Return the strongest value that each setting has under our name, by field."""
    found = dict(contents.ours)
    found.update(_environment(environment))
    for name, raw in flags.items():
        origin = f"flag --{key(name)}"
        found[name] = Given(value=raw, origin=origin, place=Place.FLAG, is_ours=True)
    return {name: _read(name, given) for name, given in found.items()}


def _environment(environment: Mapping[str, str]) -> Iterator[tuple[str, Given]]:
    """Yield what our variables set; an empty one is unset."""
    by_variable = {variable(name): name for name in options()}
    for found in sorted(environment):
        is_ours = found.startswith(PREFIX) and found not in _NO_SETTINGS
        if not is_ours or _SERVICE_LINK.fullmatch(found) or not environment[found]:
            continue
        if found not in by_variable:
            close = did_you_mean(found, tuple(by_variable)).lstrip("; ")
            cure = close or "`nodetopo run --help` lists all settings"
            raise InputError(f"unknown environment variable: {found!r}", cure)
        yield (
            by_variable[found],
            Given(
                value=environment[found],
                origin=f"environment {found}",
                place=Place.ENVIRONMENT,
                is_ours=True,
            ),
        )


def _read(name: str, given: Given) -> Given:
    try:
        return replace(given, value=option(name).read(given.value))
    except ValueError as error:
        shown = reprlib.repr(given.value)
        raise InputError(f"{given.origin}: {shown} is {error}", option(name).help) from None


def _with_derived(given: Mapping[str, Given], environment: Mapping[str, str]) -> dict[str, Given]:
    """Return *given* and the settings whose default depends on where the daemon runs."""
    # The kubelet lower-cases the host name to name its Node (pkg/util/node GetHostname).
    node = environment.get("NODE_NAME")
    is_in_cluster = "KUBERNETES_SERVICE_HOST" in environment
    kubeconfig = given.get("kubeconfig")
    derived = {
        "node_name": Given(
            value=node or os.uname().nodename.lower(),
            origin="environment NODE_NAME" if node else "host name",
            place=Place.DEFAULT,
        ),
        "publish_labels": Given(
            value=is_in_cluster or (kubeconfig is not None and kubeconfig.value is not None),
            origin="default, in a cluster" if is_in_cluster else "default",
            place=Place.DEFAULT,
        ),
    }
    if pod := environment.get("POD_NAME"):
        origin = "environment POD_NAME"
        derived["pod_name"] = Given(value=pod, origin=origin, place=Place.DEFAULT)
    if is_in_cluster and (namespace := own_namespace()) is not None:
        origin = "default, of the pod"
        derived["namespace"] = Given(value=namespace, origin=origin, place=Place.DEFAULT)
    labels = given.get("publish_labels", derived["publish_labels"])
    derived["publish_events"] = Given(
        value=labels.value, origin="default, as publish-labels", place=Place.DEFAULT
    )
    return {**derived, **given}


def _check_one_machine(chosen: dict[str, Given]) -> None:
    """Let the stronger source choose what is simulated; one source must not name two."""
    machine, snapshot = chosen.get("machine"), chosen.get("snapshot")
    if machine is None or snapshot is None or None in (machine.value, snapshot.value):
        return
    if machine.place == snapshot.place:
        raise InputError("both a machine and a snapshot are set", "keep one of the two")
    del chosen["machine" if machine.place < snapshot.place else "snapshot"]


def _check_table(chosen: Mapping[str, Given]) -> None:
    model, table = chosen.get("bandwidth_model"), chosen.get("bandwidth_table")
    if model is not None and model.value == Model.TABLE and table is None:
        raise InputError(
            f"{model.origin}: the model `table` needs measured bandwidths",
            f"set {key('bandwidth_table')}, or another model",
        )


def _follow(chosen: dict[str, Given]) -> None:
    """Set what is not given and follows from what is.

    Raises:
        InputError: the CDI specification would name devices as NVIDIA's programs do.
    """
    root, written = chosen.get("driver_root"), chosen.get("cdi_spec")
    if root is not None and "dev_root" not in chosen:  # as with NVIDIA's, api/config/v1/config.go
        chosen["dev_root"] = replace(root, origin=f"{root.origin}, as driver-root")
    if written is None or written.value != "write":
        return
    kind = chosen.get("cdi_kind") or Given(value=KIND, origin="default", place=Place.DEFAULT)
    try:
        value = written_kind(kind.value)
    except InputError as error:
        raise InputError(f"{kind.origin}: {error.cause}", error.cure) from None
    origin = kind.origin if value == kind.value else f"{kind.origin}, as cdi-spec is write"
    chosen["cdi_kind"] = replace(kind, value=value, origin=origin)


def _about_strategies(chosen: Mapping[str, Given], *, is_nvidias: bool) -> Iterator[str]:
    given, prefix = chosen.get("device_list_strategy"), chosen.get("cdi_annotation_prefix")
    if given is not None:
        strategies = tuple(map(Strategy, given.value))
        asked = PluginSettings(strategies=strategies)
        if prefix is not None:
            asked = replace(asked, annotation_prefix=prefix.value)
        yield from (f"{given.origin}: {text}" for text in start_warnings(asked))
    elif is_nvidias:
        yield (
            "device-list-strategy is not set: devices are handed over by cdi-cri, where NVIDIA's"
            " device plugin takes envvar"
        )
