"""The chart's README, the schema of its values, and the labels of GPU nodes for kustomize.

From values.yaml, the settings and ``files/gpu-nodes.yaml``.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import indent
from typing import Any

import yaml

from nodetopo.formats.names import DNS_NAME
from nodetopo.kernel.settings import policies
from nodetopo.kernel.settings import values as readers
from nodetopo.kernel.settings.declare import key, options
from nodetopo.kernel.settings.values import Option
from nodetopo.model.limits import MAX_GPUS
from scripts.generators.distributions import distributions

CHART = Path(__file__).parents[2] / "deploy" / "helm"
README = CHART / "README.md"
SCHEMA = CHART / "values.schema.json"
GPU_NODES = CHART / "files" / "gpu-nodes.yaml"
COMPONENT = CHART.parent / "daemonset" / "components" / "gpu-nodes" / "kustomization.yaml"

_COMPONENT = """\
# Generated from deploy/helm/files/gpu-nodes.yaml: scripts/generate chart
# Runs the agent only on nodes that a label says have GPUs: of NFD, of the GPU Operator, of a cloud,
# of the agent itself, or nvidia.com/gpu.present=true, which you can set yourself. Without it the
# agent runs on every Linux node, and idles where there are no GPUs.
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
patches:
  - target:
      kind: DaemonSet
      name: nodetopo
    patch: |-
      - op: replace
        path: /spec/template/spec/affinity/nodeAffinity/{required}/nodeSelectorTerms
        value:
"""

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

OPEN = {
    "affinity": "object",
    "commonLabels": "object",
    "imagePullSecrets": "array",
    "initContainers": "array",
    "livenessProbe": "object",
    "metrics.dashboard.annotations": "object",
    "podSecurityContext": "object",
    "readinessProbe": "object",
    "securityContext": "object",
    "updateStrategy": "object",
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

_PROBE = {
    "additionalProperties": False,
    "properties": {
        name: {"type": "integer", "minimum": least}
        for name, least in {
            "failureThreshold": 1,
            "initialDelaySeconds": 0,
            "periodSeconds": 1,
            "successThreshold": 1,
            "terminationGracePeriodSeconds": 1,
            "timeoutSeconds": 1,
        }.items()
    },
}
"""Of a Probe (core/v1), all but the action, which the chart knows."""

NARROW: Mapping[str, Mapping[str, Any]] = {
    "image.digest": {"pattern": "^(sha256:[0-9a-f]{64})?$"},
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "image.repository": {"minLength": 1},
    "distribution": {"enum": ["", *distributions()]},
    "kubeletRootDir": {"pattern": "^(/.*[^/])?$"},
    "maxUnavailable": {"type": ["string", "integer"], "pattern": "^[0-9]+%?$", "minimum": 1},
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
    "metrics.podMonitor.interval": {"pattern": "^[0-9]+(ms|s|m|h)$"},
    "metrics.port": {"minimum": 1, "maximum": 65535},
    "metrics.serviceMonitor.interval": {"pattern": "^[0-9]+(ms|s|m|h)$"},
    "networkPolicy.apiServerPort": {"minimum": 1, "maximum": 65535},
    "extraArgs": {"items": {"type": "string"}},
    "commonLabels": {"additionalProperties": {"type": "string"}},
    "podLabels": {"additionalProperties": {"type": "string"}},
    "fullnameOverride": {"pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"},
    "nameOverride": {"pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"},
    "terminationGracePeriodSeconds": {"minimum": 0},
    "updateStrategy": {
        "properties": {
            "type": {"enum": ["RollingUpdate", "OnDelete"]},
            "rollingUpdate": {"type": "object"},
        },
        "additionalProperties": False,
    },
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

_TEXT = {"type": "string", "minLength": 1}
_NAMES = {
    "type": ["string", "number", "array"],
    "items": {"type": ["string", "number"]},
}


def _exactly(pattern: str, **more: Any) -> dict[str, Any]:
    """Return the schema of a text that *pattern* matches as a whole."""
    return {"type": "string", "pattern": f"^({pattern})$", **more}


def _listed(item: str, *alone: str) -> dict[str, Any]:
    """Return the schema of *item* patterns, by comma or as an array, or of a word *alone*."""
    whole = "|".join((rf"({item})(\s*,\s*({item}))*", *alone))
    return {
        "type": ["string", "array"],
        "pattern": rf"^\s*({whole})\s*$",
        "items": {"type": "string", "pattern": f"^({item})$"},
    }


FORMS: Mapping[Callable[..., Any], Mapping[str, Any]] = {
    readers.absolute_path: _exactly("/.*"),
    readers.address: _exactly(f"none|off|{readers.ADDRESS.pattern}"),
    readers.annotation_prefix: _TEXT,
    readers.duration: _exactly(readers.DURATION.pattern, type=["string", "number"], minimum=0),
    readers.gpu_count: _exactly(
        "auto|[0-9]{1,3}", type=["string", "integer"], minimum=0, maximum=MAX_GPUS
    ),
    # No enum with "0" and 0: Helm's validator takes them for equal, and refuses the schema.
    readers.imex_channels: {
        "type": ["string", "integer", "array"],
        "pattern": "^(none|0)$",
        "minimum": 0,
        "maximum": 0,
        "items": {"pattern": "^(none|0)$", "minimum": 0, "maximum": 0},
        "maxItems": 1,
    },
    readers.kubelet_url: _exactly(f"none|off|https://{readers.ADDRESS.pattern}/*"),
    readers.label_key: _exactly(readers.LABEL.pattern),
    readers.label_prefix: _exactly(f"{DNS_NAME}/", maxLength=readers.LONGEST_PREFIX),
    readers.names: _NAMES,
    readers.namespace: _exactly(readers.NAMESPACE.pattern),
    readers.path: _TEXT,
    readers.path_or_none: _TEXT,
    readers.resource: _exactly(readers.RESOURCE.pattern),
    readers.resource_or_none: _exactly(f"none|{readers.RESOURCE.pattern}"),
    readers.scan_interval: _exactly(readers.DURATION.pattern, type=["string", "number"], minimum=1),
    readers.set_sizes: {
        "type": ["string", "integer", "array"],
        "pattern": r"^(auto|none|[0-9]{1,3}(\s*,\s*[0-9]{1,3})*)$",
        "minimum": 1,
        "maximum": MAX_GPUS,
        "items": {"type": ["string", "integer"]},
    },
    # As Helm reads YAML, a bare yes, no, on or off is a boolean as well.
    readers.switch: {"enum": [True, False, *readers.YES, *readers.NO]},
    readers.text: {"type": ["string", "number"]},
    readers.text_or_none: {"type": ["string", "number"]},
    policies.time_slicing: _listed(
        f"{readers.RESOURCE.pattern}=[0-9]{{1,6}}|{policies.RENAME}|{policies.ONE_EACH}", "none"
    ),
}
"""The schema of a setting without a list of words, by its reader. The container gets every value
as text, an array joined by commas: the schema never refuses what the daemon reads, and refuses as
much of the rest as a pattern can tell."""

_WORDS: Mapping[Callable[..., Any], Callable[[str], dict[str, Any]]] = {
    policies.placement: lambda words: _listed(rf"([^,=]+=\s*)?({words})"),
    policies.xid_classes: lambda words: _listed(
        rf"{policies.XIDS.pattern}\s*=\s*({words})", "none"
    ),
    policies.job_variables: lambda words: _listed(words, "all", "none"),
}
"""The schema of a setting whose list has words and more, from the pattern of its words."""

_TYPES = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}


def values() -> dict[str, Any]:
    """Return the chart's values as they are by default."""
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    return found


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 7, which Helm 3 takes) of the values."""
    return {"$schema": "http://json-schema.org/draft-07/schema#", **_of("", values(), comments())}


def _of(path: str, value: Any, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the schema of the value at *path*; *value* is its default, *texts* say what for."""
    described = {"description": texts[path]} if path in texts else {}
    if path == "settings":
        declared = {key(name): option for name, option in options().items()}
        return {
            **described,
            "type": "object",
            "additionalProperties": False,
            "properties": {
                name: {**setting(option), "description": option.help}
                for name, option in declared.items()
                if name not in BY_THE_CHART
            },
        }
    narrow = NARROW.get(path, {})
    if path in OPEN:
        return {**described, "type": OPEN[path], **narrow}
    if isinstance(value, dict):
        inner = {name: _of(f"{path}.{name}".lstrip("."), one, texts) for name, one in value.items()}
        # Helm hands over `global` to every chart that is a part of another one.
        inner |= {} if path else {"global": {"type": "object"}}
        # Helm drops the key of a null, and the templates rely on each.
        required = {"required": list(value)}
        return {"type": "object", "additionalProperties": False, **required, "properties": inner}
    return {**described, "type": _TYPES[type(value)], **narrow}


def setting(option: Option) -> Mapping[str, Any]:
    """Return the schema of the values that *option* can be given below ``settings``.

    Raises:
        KeyError: its reader has no row in :data:`FORMS`.
    """
    if option.choices:
        return {"enum": list(option.choices)}
    if option.words:
        return _WORDS.get(option.read, _listed)("|".join(map(re.escape, option.words)))
    if option.read not in FORMS:
        name = getattr(option.read, "__qualname__", option.read)
        raise KeyError(f"the reader {name} of a setting has no row in FORMS of {__name__}")
    return FORMS[option.read]


def readme() -> str:
    """Return the page of the values."""
    lines = [
        "# nodetopo",
        "",
        "This page lists the values of the Helm chart. See",
        "[Install](../../docs/operate/install.md) for the objects and the components.",
        "`scripts/generate chart` makes this page from `values.yaml`.",
        "",
        "```",
        "helm install nodetopo oci://ghcr.io/OWNER/charts/nodetopo --version 0.1.0 \\",
        "  --namespace nodetopo --create-namespace",
        "```",
        "",
        "| value | default | meaning |",
        "| --- | --- | --- |",
    ]
    lines += [f"| `{path}` | `{default}` | {text} |" for path, default, text in _rows()]
    return "\n".join(lines) + "\n"


def _rows() -> Iterator[tuple[str, str, str]]:
    """Yield path, default and description of each value, in the order of the file."""
    texts = comments()
    for path, default in _leaves("", values()):
        yield path, json.dumps(default), texts.get(path, "").replace("|", "\\|")


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value and path not in OPEN:
        for name, one in value.items():
            yield from _leaves(f"{path}.{name}".lstrip("."), one)
    else:
        yield path, value


def comments() -> dict[str, str]:
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


def component() -> str:
    """Return the component ``gpu-nodes``: for each label a term, with the base's expression."""
    base = yaml.safe_load(
        (CHART.parent / "daemonset" / "base" / "daemonset.yaml").read_text("utf-8")
    )
    affinity = base["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity[_REQUIRED]["nodeSelectorTerms"]
    terms = [
        {"matchExpressions": [label, *term["matchExpressions"]]}
        for label in yaml.safe_load(GPU_NODES.read_text("utf-8"))
    ]
    # Without aliases, which kustomize would keep.
    plain = json.loads(json.dumps(terms))
    return _COMPONENT.format(required=_REQUIRED) + indent(
        yaml.safe_dump(plain, sort_keys=False), " " * 10
    )


def made() -> Mapping[Path, str]:
    """Return the page, the schema and the component."""
    return {
        README: readme(),
        SCHEMA: json.dumps(schema(), indent=2) + "\n",
        COMPONENT: component(),
    }


def owned() -> Iterable[Path]:
    """Return the files of this generator."""
    return (README, SCHEMA, COMPONENT)
