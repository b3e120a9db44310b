"""Writes the ResourceSlices of our driver, and never because the server's answer alone differs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
from msgspec import Struct

from nodetopo.components.dra.pool import Pool
from nodetopo.components.dra.served_fields import ServedFields
from nodetopo.components.dra.slices import LISTS, Group, changes, known_fields
from nodetopo.errors import ApiUnavailable
from nodetopo.formats.responses import part
from nodetopo.kubeapi.apply import FIELD_MANAGER, Connect
from nodetopo.kubeapi.client import FORBIDDEN, NOT_FOUND, Answer
from nodetopo.kubeapi.slices import Slices
from nodetopo.kubeapi.watch import NODES
from nodetopo.model.dra import DRIVER, SLICES

_OK = (200, 201)

_INVALID = (400, 422)

_UNKNOWN_FIELD = "not declared in schema"
"""In the answer to an apply with a field that the server is too old for (structured-merge-diff,
``typed``)."""


AHEAD_S = 5.0
"""How long the server's answers take precedence over the watch: the events of two writes arrive one
by one, and a pool seen between them looks like one that needs a new generation.
"""


class FieldsDropped(Exception):  # noqa: N818 - not an error: the slices take another form
    """The server does not keep a field that the slices need."""


class SlicePublisher:
    """Keeps the slices of *node* at the API server; for one thread."""

    def __init__(
        self,
        node: str,
        connect: Connect,
        served: ServedFields,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.writes = 0  # slices written or deleted
        self.errors = 0  # attempts to write that failed
        self._node = node
        self._connect = connect
        self._served = served
        self._owner: Mapping[str, Any] | None = None
        self._clock = clock
        self._answers: dict[
            str, tuple[Any, Any]
        ] = {}  # name → the last sent body, and the stored one
        self._ahead: dict[str, _Written] = {}  # of the watch

    @property
    def is_ahead(self) -> bool:
        """Whether the watch might lack recent writes; it catches up soon."""
        return bool(self._ahead)

    def publish(self, pool: Pool, groups: Sequence[Group], observed: Slices) -> None:
        """Write the differences from *observed*, the slices of our driver.

        Raises:
            FieldsDropped: nothing was written, or the server has just been replaced.
            ApiUnavailable: a write failed; earlier writes are done.
        """
        current = self._current(observed)
        seen = {name: {**each, "spec": self._as_sent(name, each)} for name, each in current.items()}
        todo = changes(self._node, self._node_reference(), pool.counter_sets, groups, seen)
        for body in todo.applied:
            if self._served.untried(body["spec"]):
                self._try(body)
        for body in todo.applied:
            name = body["metadata"]["name"]
            stored = self._apply(body)
            self._ahead[name] = _Written(_version(observed.get(name)), stored, self._clock())
        for name in todo.deleted:
            self.delete(name)
            self._ahead[name] = _Written(_version(observed.get(name)), None, self._clock())
        if todo:
            structlog.get_logger().info(
                "slices published",
                written=len(todo.applied),
                deleted=len(todo.deleted),
                devices=sum(len(group.devices) for group in groups),
            )

    def delete(self, name: str) -> None:
        path = f"{SLICES}/{name}"
        answer = self._connect().delete(path)
        if answer.status not in (200, 202, NOT_FOUND):
            raise _refusal(f"DELETE {self._connect().host}{path}", answer)
        self._answers.pop(name, None)
        self.writes += 1

    def _as_sent(self, name: str, each: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the specification of an observed slice in the form that we would send.

        Unknown fields are removed; if the server's answer to a write is unchanged, the sent form is
        used.
        """
        spec = known_fields(each.get("spec", {}))
        sent, stored = self._answers.get(name, (None, None))
        return sent if sent is not None and spec == stored else spec

    def _try(self, body: Mapping[str, Any]) -> None:
        """Have the server validate *body* without storing it, to detect dropped fields."""
        answer = self._send(body, {"dryRun": "All"})
        if answer.status in _INVALID or _UNKNOWN_FIELD in answer.problem:
            # What is left of a dropped list is not valid. Whatever else it is, a slice without what
            # is new is better than none.
            structlog.get_logger().info("slice refused", tried=True, problem=answer.problem[:300])
            untried = self._served.untried(body["spec"])
            _raise_if(self._served.drop(untried & {LISTS} or untried))
        elif answer.status in _OK:
            _raise_if(self._served.compare(body["spec"], part(answer.body, "spec")))
        else:
            raise _refusal(f"PATCH {self._connect().host}{SLICES}", answer)

    def _apply(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        name = body["metadata"]["name"]
        answer = self._send(body, {})
        if answer.status not in _OK:
            raise _refusal(f"PATCH {self._connect().host}{SLICES}/{name}", answer)
        self.writes += 1
        stored = part(answer.body, "spec")
        self._answers[name] = body["spec"], known_fields(stored)
        _raise_if(self._served.compare(body["spec"], stored))
        return answer.body

    def _current(self, observed: Slices) -> Slices:
        """Return *observed* with later writes that the watch has not shown yet."""
        current = dict(observed)
        for name, written in tuple(self._ahead.items()):
            is_shown = _version(observed.get(name)) != written.before
            if is_shown or self._clock() - written.at > AHEAD_S:
                del self._ahead[name]
            elif written.stored is None:
                current.pop(name, None)
            else:
                current[name] = written.stored
        return current

    def _send(self, body: Mapping[str, Any], query: Mapping[str, str]) -> Answer:
        path = f"{SLICES}/{body['metadata']['name']}"
        asked = {"fieldManager": FIELD_MANAGER, "force": "true", **query}
        return self._connect().apply(path, asked, body, is_whole=True)

    def _node_reference(self) -> Mapping[str, Any] | None:
        """Return the owner of the slices; ``None`` where the Node cannot be read yet."""
        if self._owner is None:
            answer = self._connect().get_metadata(f"{NODES}/{self._node}", {"resourceVersion": "0"})
            uid = part(answer.body, "metadata").get("uid") if answer.status == 200 else None
            if uid is not None:
                self._owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": uid}
        return self._owner


class _Written(Struct, frozen=True):
    """A write that the watch might not have shown yet."""

    before: str | None  # the version in the watch at that time; None if the slice was missing
    stored: Mapping[str, Any] | None  # as the server stored it; None if it was deleted
    at: float


def _version(each: Mapping[str, Any] | None) -> str | None:
    return None if each is None else str(part(each, "metadata").get("resourceVersion"))


def own(slices: Slices) -> Slices:
    """Return the slices of our driver."""
    return {
        name: each for name, each in slices.items() if each.get("spec", {}).get("driver") == DRIVER
    }


def _raise_if(dropped: frozenset[str]) -> None:
    if dropped:
        raise FieldsDropped(", ".join(sorted(dropped)))


def _refusal(request: str, answer: Answer) -> ApiUnavailable:
    cure = "it is tried again later"
    if answer.status == FORBIDDEN:
        cure = "grant `create`, `patch` and `delete` on resourceslices to the agent's account"
    if answer.status == NOT_FOUND:
        cure = "DRA needs Kubernetes 1.34: turn dra off on older clusters"
    return ApiUnavailable(f"{request}: {answer.problem}", cure, retry_after_s=answer.retry_after_s)
