"""An API server with objects of any kind: as much of server-side apply as whole fields need."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import count
from typing import Any

from nodetopo.errors import ApiUnavailable
from nodetopo.kubeapi.client import MAX_OBJECT, Answer, Api

Object = dict[str, Any]
Leaf = tuple[str, ...]
_GIVEN = {("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")}
_CREATES = 201
_MISSING: Any = object()


@dataclasses.dataclass
class FakeObjects(Api):
    """The objects by path, who owns which of their fields, and what was asked.

    Lists are owned as a whole, as those of a NodeResourceTopology are.

    Attributes:
        fail_with: answer every request with this status instead; 0 for no answer.
        refuse: path → status with which requests for it are answered.
        asked: method and path of every request, in order.
    """

    objects: dict[str, Object] = dataclasses.field(default_factory=dict)
    owners: dict[str, dict[Leaf, set[str]]] = dataclasses.field(default_factory=dict)
    fail_with: int | None = None
    refuse: dict[str, int] = dataclasses.field(default_factory=dict)
    asked: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    _uids: Iterator[int] = dataclasses.field(default_factory=lambda: count(1))

    @property
    def host(self) -> str:
        """Some URL."""
        return "http://fake"

    @property
    def writes(self) -> list[str]:
        """The paths that were written, in order."""
        return [path for method, path in self.asked if method != "GET"]

    def put(self, path: str, body: Mapping[str, Any], manager: str = "somebody") -> Object:
        """Have *manager* make the object at *path* as *body*, whatever was there."""
        made = deepcopy(dict(body))
        made.setdefault("metadata", {}).setdefault("uid", f"uid-{next(self._uids)}")
        self.objects[path] = made
        self.owners[path] = {leaf: {manager} for leaf, _ in _leaves(made)}
        return made

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: str | None,
        *,
        max_bytes: int = MAX_OBJECT,
    ) -> Answer:
        del max_bytes
        self.asked.append((method, path))
        status = self.refuse.get(path, self.fail_with)
        if status == 0:
            raise ApiUnavailable("no answer")
        if status is not None:
            return Answer(status=status, body={"message": "go away"}, retry_after_s=7.0)
        status, found = self._routed(method, path, query, body)
        if found is not _MISSING and "PartialObjectMetadata" in headers["Accept"]:
            found = {"metadata": found["metadata"]} if "metadata" in found else found
        return Answer(status=status, body={} if found is _MISSING else found, retry_after_s=None)

    def _routed(
        self, method: str, path: str, query: Mapping[str, str], body: str | None
    ) -> tuple[int, Any]:
        if method == "PATCH":
            return self._apply(path, query, json.loads(body or "{}"))
        if path not in self.objects:
            return 404, {"message": "not found"}
        if method == "DELETE":
            return 200, self.objects.pop(path)
        return 200, self.read(path)

    def read(self, path: str) -> Object:
        """Return the object as a GET does."""
        found = deepcopy(self.objects[path])
        managers = sorted({name for names in self.owners[path].values() for name in names})
        found["metadata"]["managedFields"] = [
            {
                "manager": name,
                "operation": "Apply",
                "fieldsV1": _fields(
                    leaf for leaf, names in self.owners[path].items() if name in names
                ),
            }
            for name in managers
        ]
        return found

    def _apply(
        self, path: str, query: Mapping[str, str], body: Mapping[str, Any]
    ) -> tuple[int, Any]:
        manager = query["fieldManager"]
        uid = body["metadata"].get("uid")
        there = self.objects.get(path)
        if uid is not None and (there is None or there["metadata"]["uid"] != uid):
            return 409, {"message": "uid mismatch"}
        if there is None:
            self.put(path, body, manager)
            return _CREATES, self.read(path)
        sent = {leaf: value for leaf, value in _leaves(body) if leaf not in _GIVEN}
        owners = self.owners[path]
        conflicts = [
            leaf
            for leaf, value in sent.items()
            if owners.get(leaf, set()) - {manager} and _get(there, leaf) != value
        ]
        if conflicts and query.get("force") != "true":
            causes = [
                {"reason": "FieldManagerConflict", "field": ".".join(leaf)} for leaf in conflicts
            ]
            return 409, {"message": "conflict", "details": {"causes": causes}}
        self._store(path, manager, sent)
        return 200, self.read(path)

    def _store(self, path: str, manager: str, sent: Mapping[Leaf, Any]) -> None:
        there, owners = self.objects[path], self.owners[path]
        for leaf in [one for one, names in owners.items() if manager in names]:
            if leaf not in sent and leaf not in _GIVEN and leaf != ("metadata", "uid"):
                owners[leaf].discard(manager)
                if not owners[leaf]:
                    del owners[leaf]
                    _parent(there, leaf).pop(leaf[-1], None)
        for leaf, value in sent.items():
            if _get(there, leaf) != value:
                owners[leaf] = set()
            _parent(there, leaf)[leaf[-1]] = deepcopy(value)
            owners.setdefault(leaf, set()).add(manager)


def _leaves(body: Mapping[str, Any], above: Leaf = ()) -> Iterator[tuple[Leaf, Any]]:
    for key, value in body.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _parent(body: Object, leaf: Leaf) -> Object:
    for key in leaf[:-1]:
        body = body.setdefault(key, {})
    return body


def _get(body: Object, leaf: Leaf) -> Any:
    return _parent(body, leaf).get(leaf[-1], _MISSING)


def _fields(leaves: Iterator[Leaf]) -> Object:
    found: Object = {}
    for leaf in leaves:
        _parent(found, tuple(f"f:{key}" for key in leaf))[f"f:{leaf[-1]}"] = {}
    return found
