"""Logs, metrics and other texts without secrets, and without the identity of node and workload.

They contain the same names as the snapshot, and get the same substitutes. In addition, anything
that looks like a credential is removed.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.capture.scrub import NODE, Substitutes, without
from nodetopo.tools.capture.substitutes import LEAST

LEFT_OUT = "…"
"""Stands for a secret."""

PUBLIC_NAMES = frozenset(
    """
    default gpu-operator kube-node-lease kube-public kube-system node-feature-discovery nodetopo
    nvidia-device-plugin
    """.split()  # noqa: SIM905 - as prose
)
"""Names of public programs and of Kubernetes' own namespaces, which identify no user."""

_SECRETS = (
    re.compile(r"-----BEGIN [A-Z ]+-----.*?(?:-----END [A-Z ]+-----|\Z)", re.DOTALL),
    # A JSON Web Token (RFC 7519): base64url of '{"', twice, and a signature.
    re.compile(r"eyJ[\w-]{4,}\.[\w-]{4,}(?:\.[\w-]*)?"),
    re.compile(r"(?i)(?<=bearer )\S+|(?<=basic )[A-Za-z0-9+/=]{8,}"),
    re.compile(r"(?<=://)[^\s/@'\"]+(?=@)"),  # user and password of a URL
    # Keys of cloud providers and forges, by their documented prefixes.
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\bgh[pousr]_\w{16,}|\bglpat-[\w-]{16,}"),
    # A key, a digest, or the id of a container, as hexadecimal and as base64.
    re.compile(r"\b[0-9a-f]{40,}\b"),
    re.compile(
        r"(?<![\w+/.-])(?!(?:GPU|MIG)-)(?=\S*[0-9])(?=\S*[A-Z])(?=\S*[a-z])[A-Za-z0-9+_=-]{40,}"
    ),
)

_NAMED = re.compile(
    r"(?i)((?:[\w-]*(?:token|passw(?:or)?d|passwd|secret|api[_-]?key|credential|authorization)"
    r"[\w-]*)[\"']?\s*[=:]\s*[\"']?)([^\s\"',;&]+)"
)
"""A value that its name calls a secret."""

_SECRET_KEY = re.compile(r"(?i)token|passw|secret|api_?key|credential|authorization")

_HOME = re.compile(r"/(?:home|Users|root)(?:/[^\s:'\",)]*)?")
"""Home directories: they hold names of people."""

_POD_KEYS = ("pod", "object")
"""Keys of log lines whose value is ``namespace/name``."""

_NODE_KEYS = ("node", "node-name", "node_name")
_NAME_KEYS = {
    "pod": "pod",
    "pod-name": "pod",
    "namespace": "namespace",
    "container": "container",
}
"""Keys of log lines, settings and metrics, and the kind of name that is their value."""

_LABEL = re.compile(r'(?<=[{,])(pod|namespace|container|node)="((?:[^"\\]|\\.)*)"')
"""Those labels of a metric that name a node or a workload."""


class TextScrubber:
    """Replaces in texts the names that ``scrubbed`` replaces in *snapshot*.

    Args:
        snapshot: as read, with its names.
        substitutes: of its scrubbed form.
    """

    def __init__(self, snapshot: Snapshot, substitutes: Substitutes) -> None:
        self._substitutes = substitutes
        names: set[str] = set()
        for pod in snapshot.pods or ():
            names |= {pod.name, pod.namespace, pod.hostname or ""}
            names |= {container.name for container in pod.containers}
        self._names = {name for name in names - PUBLIC_NAMES if len(name) >= LEAST}
        self.secrets = 0

    def text(self, text: str) -> str:
        """Return *text* without credentials, addresses, homes, hosts, ids and names of pods."""
        for pattern in _SECRETS:
            text = pattern.sub(self._secret, text)
        text = _NAMED.sub(lambda match: match[1] + self._secret(match), text)
        text = _HOME.sub(f"/{LEFT_OUT}", text)
        text = without(text, self._names)
        self._substitutes.learn_text(text)
        return self._substitutes.apply(text)

    def log(self, lines: Iterable[str]) -> str:
        """Return the *lines* of a log, each by its keys where it is JSON."""
        return "".join(f"{self._line(line)}\n" for line in lines)

    def metrics(self, text: str) -> str:
        """Return Prometheus' text format with other names in its labels."""
        return self.text(
            _LABEL.sub(lambda match: f'{match[1]}="{self._named(match[1], match[2])}"', text)
        )

    def plain(self, value: Any, key: str = "") -> Any:
        """Return *value*, made of JSON's types, with every text in it scrubbed."""
        match value:
            case dict():
                return {self.text(str(name)): self.plain(it, name) for name, it in value.items()}
            case list() | tuple():
                return [self.plain(item, key) for item in value]
            case str() if _SECRET_KEY.search(key):
                return self._secret(None)
            case str():
                return self._named(key, value)
        return value

    def _line(self, line: str) -> str:
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            return self.text(line)
        if not isinstance(fields, dict):
            return self.text(line)
        return json.dumps(self.plain(fields), ensure_ascii=False)

    def _named(self, key: str, value: str) -> str:
        """Return the scrubbed *value* of a name of the kind given by *key*."""
        namespace, slash, _name = value.partition("/")
        if key in _POD_KEYS and slash:
            pod = self._substitutes.counted("pod", value)
            return f"{self._substitutes.counted('namespace', namespace)}/{pod}"
        if key in _NODE_KEYS:  # also where the name is too short to be replaced inside texts
            return NODE
        if (kind := _NAME_KEYS.get(key)) is not None and value not in PUBLIC_NAMES:
            return self._substitutes.counted(kind, value)
        return self.text(value)

    def _secret(self, _match: object) -> str:
        self.secrets += 1
        return LEFT_OUT
