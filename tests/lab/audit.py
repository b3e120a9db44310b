"""What the API server wrote down of the agents' requests, one JSON object a line."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_WHO = ":nodetopo"
"""How the name of our service account ends."""


def moment() -> str:
    """Return the present as the log writes it; such texts are in the order of their times."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Audit:
    """Reads the log at *path*.

    The line of a request may be written a moment after its answer was read, so that a count may
    have to be waited for, and lines of what was asked before may follow: *since* leaves those
    out, by the time at which the server received the request.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def verbs(self, node: str, since: str = "") -> tuple[str, ...]:
        """Return what the agent asked of the Node object, such as ``get``, in order."""
        return tuple(
            event["verb"]
            for event in self._events(since)
            if event["objectRef"]["resource"] == "nodes" and event["objectRef"].get("name") == node
        )

    def requests(self, since: str = "") -> Counter[tuple[str, str]]:
        """Return how often the agents of all nodes used each verb on each kind of object.

        Questions for anything else, such as the server's version, do not count.
        """
        return Counter(
            (event["verb"], event["objectRef"]["resource"]) for event in self._events(since)
        )

    def _events(self, since: str) -> Iterator[dict[str, Any]]:
        text = self._path.read_text("utf-8", errors="replace")
        for line in text[: text.rfind("\n") + 1].splitlines():
            if _WHO not in line:
                continue  # thousands are the kubelets'
            event = json.loads(line)
            # The end of a watch has a line of its own: whoever stops an agent writes it.
            is_end = event["verb"] == "watch" and event["stage"] == "ResponseComplete"
            is_ours = event["user"]["username"].endswith(_WHO) and "objectRef" in event
            if is_ours and not is_end and event["requestReceivedTimestamp"] >= since:
                yield event
