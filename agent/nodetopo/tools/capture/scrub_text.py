"""Logs, metrics and other texts without secrets, and without the identity of node and workload.

They contain the same names as the snapshot, and get the same substitutes. Values of keys that name
an object are replaced whole, all others are free text (:mod:`nodetopo.tools.capture.words`). What a
name calls a secret is removed even if it is a public word.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

from nodetopo.tools.capture.fields import NODE, Scrub
from nodetopo.tools.capture.substitutes import LEFT_OUT, Substitutes
from nodetopo.tools.capture.words import PUBLIC_NAMES

_KEPT_KEYS = ("resource", "resources", "label-prefix", "resource-name")
"""Keys of log lines and settings whose values are kept but for known names: names of resources
and labels, which the snapshot has too."""

_WORDS = (
    r"(?:token|passw(?:or)?d|pwd|passphrase|secret|(?:api|access|private)[_-]?key|credential"
    r"|authorization)"
)
"""What names of secrets contain."""

_SECRET_KEY = re.compile(f"(?i){_WORDS}")

_SECRETS = (
    re.compile(r"()-----BEGIN [A-Z ]+-----.*?(?:-----END [A-Z ]+-----|\Z)", re.DOTALL),
    re.compile(
        # A value that its name calls a secret: a text in quotes to its end, else a word.
        # Bounded: a long word of such names would be searched from each of its letters.
        rf"(?i)((?:--[\w-]{{0,64}}?{_WORDS}[\w-]{{0,64}}[\s=]+"
        rf"|{_WORDS}[\w-]{{0,64}}\\*[\"']?\s{{0,8}}[=:]\s{{0,8}})"
        r"(?:(?:bearer|basic)\s{1,8})?)"
        r"""(?:\\+"[^"]*"?|"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|[^\s"'&]+)"""
    ),
    re.compile(r"((?i:bearer|basic) )[\w+/=.~-]+"),
    re.compile(r"(://)[^\s'\"]+(?=@)"),  # user and password of a URL
)

_KINDS = {
    **dict.fromkeys(("pod", "object", "pod-name"), "pod"),
    **dict.fromkeys(("claim", "namespace", "container"), ""),
    **dict.fromkeys(("node", "node-name", "node_name"), "node"),
}
"""Keys of log lines, settings and metrics whose value names an object; the kind if it is not the
key itself. Values of pods and claims are ``namespace/name`` too."""

_PAIR = re.compile(
    rf"(?<![\w.-])({'|'.join(sorted(_KINDS, key=len, reverse=True))})="
    r"""(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s,;}}]+))"""
)
"""Such a key and its value in a line of text, or in the labels of a metric."""

_SAMPLE = re.compile(
    r"(?:# (?:TYPE|HELP) )?([a-zA-Z_:][\w:]*)(?=[ {])(.*?)((?<= )[-+0-9.eEInfNa]+)?"
)
"""The name of a metric, its labels or help, and its value."""


class TextScrubber:
    """Replaces in texts the names that ``scrubbed`` replaces in the snapshot of the same node."""

    def __init__(self, substitutes: Substitutes) -> None:
        self._scrub = Scrub(substitutes)
        self.secrets = 0

    def text(self, text: str) -> str:
        """Return *text* with only public words, and the substitutes of names."""
        for pattern in _SECRETS:
            text = pattern.sub(self._secret, text)
        parts, at = [], 0
        for match in _PAIR.finditer(text):
            value = next(group for group in match.groups()[1:] if group is not None)
            named = self._named(match[1], value)
            parts += [self._scrub.words.kept(text[at : match.start()]), f'{match[1]}="{named}"']
            at = match.end()
        return "".join((*parts, self._scrub.words.kept(text[at:])))

    def log(self, lines: Iterable[str]) -> str:
        """Return the *lines* of a log, each by its keys where it is JSON.

        Names that any line has are replaced in all of them.
        """
        read = [(line, _fields(line)) for line in lines]
        for line, fields in read:
            self._learn(line, fields)
        return "".join(f"{self._line(line, fields)}\n" for line, fields in read)

    def metrics(self, text: str) -> str:
        """Return Prometheus' text format with other names in its labels."""
        for line in text.splitlines():
            self._learn(line, None)
        return "".join(f"{self._sample(line)}\n" for line in text.splitlines())

    def plain(self, value: Any, key: str = "") -> Any:
        """Return *value*, made of JSON's types, with every text in it scrubbed."""
        match value:
            case _ if value and _SECRET_KEY.search(key) and not isinstance(value, bool):
                return self._secret(None)
            case dict():
                return {
                    self.text(str(name)): self.plain(it, str(name)) for name, it in value.items()
                }
            case list() | tuple():
                return [self.plain(item, key) for item in value]
            case str() if key in _KINDS:
                return self._named(key, value)
            case str() if key in _KEPT_KEYS:
                return self._scrub.plain(value)
            case None | bool() | int() | float():
                return value
        return self.text(str(value))

    def _line(self, line: str, fields: dict[str, Any] | None) -> str:
        if fields is None:
            return self.text(line)
        try:
            return json.dumps(self.plain(fields), ensure_ascii=False)
        except RecursionError:  # nested deeper than any line of ours
            return LEFT_OUT

    def _sample(self, line: str) -> str:
        match = _SAMPLE.fullmatch(line)
        if match is None:
            return self.text(line)
        return line[: match.end(1)] + self.text(match[2]) + (match[3] or "")

    def _learn(self, line: str, fields: dict[str, Any] | None) -> None:
        """Give a substitute to each object that a line names."""
        for match in _PAIR.finditer(line) if fields is None else ():
            self._named(match[1], next(filter(None, match.groups()[1:]), ""))
        todo: list[tuple[str, Any]] = list((fields or {}).items())
        while todo:
            key, value = todo.pop()
            if isinstance(value, dict):
                todo += value.items()
            elif isinstance(value, list):
                todo += ((key, item) for item in value)
            elif isinstance(value, str) and key in _KINDS:
                self._named(key, value)

    def _named(self, key: str, value: str) -> str:
        """Return the substitute of *value*, a name of the kind given by *key*."""
        substitutes, kind = self._scrub.substitutes, _KINDS[key] or key
        namespace, slash, name = value.partition("/")
        if not value or value in PUBLIC_NAMES:
            return value
        if kind == "node":  # also where the name is too short to be replaced inside texts
            substitutes.learn("host name", value, NODE)
            return NODE
        if slash and kind in ("pod", "claim"):
            within = self._named("namespace", namespace)
            return f"{within}/{substitutes.counted(kind, value, name)}"
        return substitutes.names.get(value) or substitutes.counted(kind, value)

    def _secret(self, match: re.Match[str] | None) -> str:
        self.secrets += 1
        return (match[1] if match else "") + LEFT_OUT


def _fields(line: str) -> dict[str, Any] | None:
    """Return the fields of a line that is a JSON object; ``None`` for other lines."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None
