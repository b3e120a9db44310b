"""An API server that lists: Nodes and other objects, a page at a time."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tests.kubeapi.fake_api_server import FakeApi


@dataclasses.dataclass
class FakeLists(FakeApi):
    """What there is to list, and what was asked.

    Attributes:
        lists: path → objects; a path that is not here is not served.
        forbidden: paths that answer 403.
        expires_after: number of answers after which a ``continue`` has expired.
        asked: path and query of every request, in order.
    """

    lists: dict[str, list[dict[str, Any]]] = dataclasses.field(default_factory=dict)
    forbidden: set[str] = dataclasses.field(default_factory=set)
    expires_after: int | None = None
    asked: list[tuple[str, dict[str, str]]] = dataclasses.field(default_factory=list)

    def answer(
        self, method: str, path: str, query: dict[str, str], body: Mapping[str, Any]
    ) -> tuple[int, Mapping[str, str], Mapping[str, Any]]:
        """Return status, headers and list."""
        assert (method, body) == ("GET", {})
        self.asked.append((path, query))
        if path in self.forbidden:
            return 403, {}, {"message": f"may not list {path}"}
        if path not in self.lists:
            return 404, {}, {}
        if self.expires_after is not None and len(self.asked) > self.expires_after:
            return 410, {}, {"message": "The provided continue parameter is too old"}
        begin, limit = int(query.get("continue", "0")), int(query.get("limit", "1"))
        items = self.lists[path]
        end = begin + limit
        following = {"continue": str(end)} if end < len(items) else {}
        return 200, {}, {"metadata": following, "items": items[begin:end]}
