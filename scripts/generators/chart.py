"""The chart's README and the schema of its values, generated from values.yaml and the settings."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from nodetopo.kernel.settings.declare import key, options

CHART = Path(__file__).parents[2] / "deploy" / "helm"
README = CHART / "README.md"
SCHEMA = CHART / "values.schema.json"

OPEN = {
    "affinity": "object",
    "imagePullSecrets": "array",
    "extraArgs": "array",
    "extraEnv": "array",
    "extraVolumeMounts": "array",
    "extraVolumes": "array",
    "metrics.dashboard.labels": "object",
    "metrics.podMonitor.labels": "object",
    "metrics.rules.labels": "object",
    "metrics.serviceMonitor.labels": "object",
    "namedConfigs.configs": "object",
    "rdma.config": "object",
    "networkPolicy.from": "array",
    "nodeSelector": "object",
    "podAnnotations": "object",
    "podLabels": "object",
    "policy.ownPrefixes": "array",
    "resources": "object",
    "serviceAccount.annotations": "object",
    "tolerations": "array",
}
"""Values that Kubernetes or the operator gives a form, not the chart, by path."""

NARROW: Mapping[str, Mapping[str, Any]] = {
    "image.digest": {"pattern": "^(sha256:[0-9a-f]{64})?$"},
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "image.repository": {"minLength": 1},
    "kubeletRootDir": {"pattern": "^/.*[^/]$"},
    "maxUnavailable": {"type": ["string", "integer"]},
    "metrics.podMonitor.interval": {"pattern": "^[0-9]+(ms|s|m|h)$"},
    "metrics.port": {"minimum": 1, "maximum": 65535},
    "metrics.serviceMonitor.interval": {"pattern": "^[0-9]+(ms|s|m|h)$"},
    "networkPolicy.apiServerPort": {"minimum": 1, "maximum": 65535},
    "extraArgs": {"items": {"type": "string"}},
    # Labels below nvidia.com/ command other programs, so that prefix is nobody's alone.
    "policy.ownPrefixes": {
        "items": {
            "type": "string",
            "pattern": "^[a-z0-9.-]+/$",
            "not": {"const": "nvidia.com/"},
        },
        "minItems": 1,
    },
}
"""Further constraints on values, by path."""

BY_THE_CHART = frozenset(
    {
        "host-root",
        "machine",
        "metrics-address",
        "node-name",
        "once",
        "or-simulate",
        "snapshot",
        "sysfs-root",
    }
)
"""Settings that the chart gives itself, or that are of no use in a cluster."""

_TYPES = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}


def values() -> dict[str, Any]:
    """Return the chart's values as they are by default."""
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    return found


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 7, which Helm 3 takes) of the values."""
    return {"$schema": "http://json-schema.org/draft-07/schema#", **_of("", values())}


def _of(path: str, value: Any) -> dict[str, Any]:
    """Return the schema of what stands at *path*, whose default is *value*."""
    if path == "settings":
        plain = ["string", "number", "boolean", "array"]
        names = [key(name) for name in options() if key(name) not in BY_THE_CHART]
        return {
            "type": "object",
            "additionalProperties": False,
            "properties": {name: {"type": plain} for name in names},
        }
    narrow = NARROW.get(path, {})
    if path in OPEN:
        return {"type": OPEN[path], **narrow}
    if isinstance(value, dict):
        inner = {name: _of(f"{path}.{name}".lstrip("."), one) for name, one in value.items()}
        # Helm hands over `global` to every chart that is a part of another one.
        inner |= {} if path else {"global": {"type": "object"}}
        return {"type": "object", "additionalProperties": False, "properties": inner}
    return {"type": _TYPES[type(value)], **narrow}


def readme() -> str:
    """Return the page of the values."""
    lines = [
        "# nodetopo",
        "",
        "The chart of nodetopo. [Install](../../docs/operate/install.md) describes what it does",
        "and what each component adds; this page lists its values.",
        "`scripts/generate chart` makes it from `values.yaml`.",
        "",
        "```",
        "helm install nodetopo deploy/helm --namespace nodetopo --create-namespace \\",
        "  --set image.repository=registry.example.com/nodetopo",
        "```",
        "",
        "| value | default | |",
        "| --- | --- | --- |",
    ]
    lines += [f"| `{path}` | `{default}` | {text} |" for path, default, text in _rows()]
    return "\n".join(lines) + "\n"


def _rows() -> Iterator[tuple[str, str, str]]:
    """Yield path, default and description of each value, in the order of the file."""
    comments = _comments()
    for path, default in _leaves("", values()):
        parents = [path.rsplit(".", count)[0] for count in range(path.count(".") + 1)]
        text = comments.get(path) or ""
        if not text:  # the comment of a group stands at its first value
            for parent in parents[1:]:
                first = next(name for name, _ in _leaves("", values()) if name.startswith(parent))
                text = comments.get(parent, "") if first == path else ""
                if text:
                    break
        yield path, json.dumps(default), text.replace("|", "\\|")


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value and path not in OPEN:
        for name, one in value.items():
            yield from _leaves(f"{path}.{name}".lstrip("."), one)
    else:
        yield path, value


def _comments() -> dict[str, str]:
    """Return the comment above each value that begins with ``--``, by path."""
    found: dict[str, str] = {}
    parents: list[str] = []
    waiting: list[str] = []
    for line in (CHART / "values.yaml").read_text("utf-8").splitlines():
        if comment := re.match(r"\s*# ?(.*)", line):
            waiting.append(comment[1])
        elif named := re.match(r"( *)([A-Za-z]+):", line):
            parents = [*parents[: len(named[1]) // 2], named[2]]
            text = " ".join(waiting)
            if text.startswith("-- "):
                found[".".join(parents)] = text.removeprefix("-- ")
            waiting = []
        else:
            waiting = []
    return found


def made() -> Mapping[Path, str]:
    """Return the page and the schema."""
    return {README: readme(), SCHEMA: json.dumps(schema(), indent=2) + "\n"}


def owned() -> Iterable[Path]:
    """Return the files of this generator."""
    return (README, SCHEMA)
