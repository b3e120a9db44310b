"""Settings out of four places, each value with its origin.

Defaults < file (YAML) < environment ``NODETOPO_*`` < flags.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from agent.allocation.rules import Model
from agent.config.settings import PREFIX, Settings, key, option, options, variable
from agent.config.values import did_you_mean
from agent.errors import InputError

CONFIG_VARIABLE = "NODETOPO_CONFIG"
"""Names the file."""

_NO_SETTINGS = (CONFIG_VARIABLE, "NODETOPO_FAKE_NVML", "NODETOPO_CORPUS")
"""Variables of ours that are none: the file, and two that only the tests' own parts read."""

_SERVICE_LINK = re.compile(
    r"NODETOPO_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)",
)
"""Variables the kubelet adds for every Service of the namespace (``enableServiceLinks``);
a Service called ``nodetopo`` must not stop the daemon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A configuration file that was read; *name* is for messages."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """Settings, and where each value comes from, by field name."""

    settings: Settings
    origins: Mapping[str, str]

    @classmethod
    def of(
        cls,
        *,
        flags: Mapping[str, object],
        environment: Mapping[str, str],
        file: ConfigFile | None = None,
    ) -> Self:
        """Join the sources, later ones over earlier ones.

        *flags* holds only what was given, by field name. Other variables than ours are
        ignored in *environment*, apart from ``NODE_NAME`` and ``KUBERNETES_SERVICE_HOST``.

        Raises:
            InputError: an unknown name, or a value that does not fit.
        """
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}
        for name, raw, origin in _given(flags, environment, file):
            values.pop(name, None)  # so that the order of `values` is the order of strength
            try:
                values[name] = option(name).read(raw)
            except ValueError as error:
                raise InputError(f"{origin}: {raw!r} is {error}", option(name).help) from None
            origins[name] = origin
        _check_one_machine(values, origins)
        _check_table(values, origins)
        _derive(values, origins, environment)
        settings = Settings(**values)
        return cls(
            settings=settings,
            origins={item.name: origins.get(item.name, "default") for item in fields(Settings)},
        )


def _given(
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    file: ConfigFile | None,
) -> Iterator[tuple[str, object, str]]:
    """Yield (field, raw value, origin), weakest source first; an empty variable is unset."""
    if file is not None:
        by_key = {key(name): name for name in options()}
        for found, raw in _document(file).items():
            name = _known(str(found), by_key, f"key in {file.name}")
            yield name, raw, f"{file.name} key {found}"
    by_variable = {variable(name): name for name in options()}
    for found in sorted(environment):
        is_ours = found.startswith(PREFIX) and found not in _NO_SETTINGS
        if is_ours and _SERVICE_LINK.fullmatch(found) is None and environment[found]:
            name = _known(found, by_variable, "environment variable")
            yield name, environment[found], f"environment {found}"
    for name, raw in flags.items():
        yield name, raw, f"flag --{key(name)}"


def _check_one_machine(values: dict[str, Any], origins: dict[str, str]) -> None:
    """Let the stronger source choose what is simulated; one source must not name two."""
    if values.get("machine") is None or values.get("snapshot") is None:
        return
    if origins["machine"].split()[0] == origins["snapshot"].split()[0]:
        raise InputError("both a machine and a snapshot are set", "keep one of the two")
    weaker = min("machine", "snapshot", key=tuple(values).index)
    del values[weaker], origins[weaker]


def _check_table(values: Mapping[str, Any], origins: Mapping[str, str]) -> None:
    if values.get("bandwidth_model") == Model.TABLE and values.get("bandwidth_table") is None:
        raise InputError(
            f"{origins['bandwidth_model']}: the model `table` needs measured bandwidths",
            f"set {key('bandwidth_table')}, or another model",
        )


def _known(found: str, names: Mapping[str, str], kind: str) -> str:
    if found not in names:
        close = did_you_mean(found, tuple(names))
        raise InputError(
            f"unknown {kind}: {found!r}",
            close.lstrip("; ") or "`nodetopo run --help` lists all settings",
        )
    return names[found]


def _document(file: ConfigFile) -> Mapping[object, object]:
    import yaml  # noqa: PLC0415 - 2 MiB that only a configuration file needs

    try:
        document = yaml.safe_load(file.text)
    except (yaml.YAMLError, RecursionError) as error:
        problem = " ".join(str(error).split())
        raise InputError(f"{file.name}: not YAML: {problem}", "correct the file") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise InputError(f"{file.name}: not a list of `key: value` lines", "correct the file")
    return document


def _derive(
    values: dict[str, Any],
    origins: dict[str, str],
    environment: Mapping[str, str],
) -> None:
    """Fill the two settings whose default depends on where the daemon runs."""
    if "node_name" not in values:
        # The kubelet lower-cases the host name to name its Node (pkg/util/node GetHostname).
        given = environment.get("NODE_NAME")
        values["node_name"] = given or os.uname().nodename.lower()
        origins["node_name"] = "environment NODE_NAME" if given else "host name"
    if "publish_labels" not in values:
        in_cluster = "KUBERNETES_SERVICE_HOST" in environment
        values["publish_labels"] = in_cluster or values.get("kubeconfig") is not None
        origins["publish_labels"] = "default, in a cluster" if in_cluster else "default"
