"""The events of one watch as they come, and a way to end it from another thread."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from agent.errors import ApiUnavailable

MAX_EVENT = 1 << 20
"""Bytes of one event; the metadata of a Node has some 7 KB, a whole Node under 100 KB."""


class Expired(Exception):  # noqa: N818 - a state of the watch
    """The server no longer knows the version from which to follow: begin anew."""


class Stream:
    """JSON objects, one a line, off one HTTP answer (Kubernetes API concepts, "watch")."""

    def __init__(self, response: Any, name: str, max_event: int = MAX_EVENT) -> None:
        """Take over *response*, which was not read yet; *name* is for messages."""
        self._response = response
        self._name = name
        self._max_event = max_event
        self._is_cancelled = False

    def __enter__(self) -> Self:
        """Return the stream, to be closed at the end."""
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """Close the connection, which cannot be used again."""
        self._response.close()

    def events(self) -> Iterator[Mapping[str, Any]]:
        """Yield each event until the server ends the stream, or :meth:`cancel` does.

        Raises:
            ApiUnavailable: the connection was lost, or what came is no event.
        """
        for line in self._lines():
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                event = None
            if not isinstance(event, dict):
                raise ApiUnavailable(f"watch {self._name}: a line is no event")
            yield event

    def cancel(self) -> None:
        """End the stream at once, from any thread."""
        self._is_cancelled = True
        with suppress(ValueError, RuntimeError, OSError):  # it has ended already
            self._response.shutdown()

    def _lines(self) -> Iterator[bytes]:
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 - costs memory before use

        held = b""
        parts = self._response.stream(self._max_event, decode_content=False)
        while True:
            try:
                part = next(parts, None)
            except (HTTPError, OSError, ValueError) as error:
                if self._is_cancelled:
                    return
                raise ApiUnavailable(f"watch {self._name}: {error}") from error
            if part is None or self._is_cancelled:
                return
            *whole, held = (held + part).split(b"\n")
            if len(held) > self._max_event:
                raise ApiUnavailable(
                    f"watch {self._name}: an event of over {self._max_event} bytes"
                )
            yield from (line for line in whole if line.strip())
