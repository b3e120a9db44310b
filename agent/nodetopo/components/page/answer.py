"""Answers to requests for the status page, from memory, cached while nothing changes."""

import json
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct, field, to_builtins

from nodetopo.components.page.html import LONGEST_TEXT, page
from nodetopo.components.page.rows import View
from nodetopo.components.page.state import PATHS, PageState
from nodetopo.components.page.style import POLICY
from nodetopo.components.page.view import PodNumbers, view
from nodetopo.formats.harmless import harmless
from nodetopo.model.digits import is_digits

SCHEMA = "nodetopo/status/v1"
"""Of the page as JSON; docs/reference/schema/status.json describes it."""

LEAST_REFRESH_S, MOST_REFRESH_S = 5, 3600
"""Bounds of the interval between two loads of a page with ``?refresh=``."""

HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "Content-Security-Policy": POLICY,
        "Cache-Control": "no-store",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
)
"""Of every answer: another site can neither frame, read nor detect the page."""


class Answer(Struct, frozen=True):
    """One answer with status 200."""

    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=lambda: HEADERS)


class StatusPage:
    """Answers from *state*, which opens nothing; any thread can ask.

    While the state is unchanged, the page is reused: a request then only costs reading the state.
    The page is built once for each state.
    """

    def __init__(self, state: Callable[[], PageState]) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._numbers = PodNumbers()
        self._made: tuple[PageState, View] | None = None
        self._bodies: dict[tuple[str, int | None], bytes] = {}

    def answer(self, target: str) -> Answer | None:
        """Return the answer to a request for *target*, path and query; ``None`` if it has none."""
        parts = urlsplit(target)
        if parts.path not in PATHS:
            return None
        is_json = parts.path == "/status.json"
        key = ("json", None) if is_json else ("html", _refresh(parts.query))
        state = self._state()
        with self._lock:
            if self._made is None or self._made[0] != state:
                self._made = state, view(state, self._numbers)
                self._bodies = {}
            body = self._bodies.get(key)
            if body is None:
                shown = self._made[1]
                if is_json:
                    made = json.dumps(_harmless(_document(shown)), indent=2) + "\n"
                else:
                    made = page(shown, self._made[0].snapshot, key[1])
                body = made.encode("utf-8", "replace")
                if len(self._bodies) < _MOST_BODIES:
                    self._bodies[key] = body
        kind = "application/json" if is_json else "text/html; charset=utf-8"
        return Answer(kind, body)


def _document(shown: View) -> dict[str, Any]:
    """Return the page as JSON's own types, with a name for every value."""
    document = {"schema": SCHEMA, **to_builtins(shown), "settings": dict(shown.settings)}
    for row in document["findings"]:
        named = ("subject", "observed", "expected")
        row["findings"] = [dict(zip(named, finding, strict=True)) for finding in row["findings"]]
    for row in document["reports"]:
        named = ("inputs", "reasons", "checks")
        row["missing"] = [dict(zip(named, missing, strict=True)) for missing in row["missing"]]
    return document


def _harmless(value: Any) -> Any:
    """Return *value* with control sequences removed: `jq -r` prints what JSON only escapes."""
    match value:
        case str():
            return harmless(value, LONGEST_TEXT)
        case dict():
            return {_harmless(key): _harmless(it) for key, it in value.items()}
        case list() | tuple():
            return [_harmless(item) for item in value]
    return value


_MOST_BODIES = 4
"""Cached forms of one state; requests can name thousands of reload intervals."""


def _refresh(query: str) -> int | None:
    """Return the seconds of ``refresh=``, within the limits; ``None`` where none are named."""
    try:
        values = parse_qs(query, max_num_fields=8).get("refresh", [])
    except ValueError:
        return None
    if not values or not is_digits(values[0]) or len(values[0]) > 6:
        return None
    return min(max(int(values[0]), LEAST_REFRESH_S), MOST_REFRESH_S)
