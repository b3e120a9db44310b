"""One object of the API server: read at least as new as our last write, written by apply.

The Kubernetes reference, "Server-Side Apply", defines an apply: fields that the manager owned and
no longer sends are removed, fields of other managers cause a conflict that *force* overrides.
Ownership is in ``metadata.managedFields``, an entry per manager, operation and subresource, whose
``fieldsV1`` spells a field ``f:<name>`` (Kubernetes API reference).
"""

from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import structlog
from msgspec import Struct

from nodetopo.errors import ApiUnavailable
from nodetopo.formats.responses import part, parts, texts
from nodetopo.kubeapi.client import NOT_FOUND, Answer, Api

FIELD_MANAGER = "nodetopo"

Connect = Callable[[], Api]
"""Returns the connection to the API server, the same one each time, or raises ApiUnavailable."""

_FROM_CACHE = "0"
"""As a resourceVersion: the API server's cached state suffices (API concepts)."""

_NEWEST = ""
"""As a resourceVersion: the current object, read from etcd."""

_OK = (200, 201)

_UNKNOWN = 500
"""From this HTTP status on, the write might have succeeded all the same: 504 means just that."""

_LABELS = ("metadata", "labels")

_ANNOTATIONS = ("metadata", "annotations")

_log = structlog.get_logger()


def connection(kubeconfig: Path | None) -> Connect:
    """Return a function that connects at its first call; its users share one connection."""
    return cache(lambda: Api(kubeconfig))


class AppliedObject:
    """The object at *path*; *cure* returns the cure for a refusal's HTTP status.

    Methods raise ApiUnavailable if no HTTP answer came (the outcome of a write is then unknown), or
    if the answer is a refusal; *apply* and *try_out* return refusals.
    """

    def __init__(
        self,
        connect: Connect,
        path: str,
        cure: Callable[[int], str],
        *,
        is_whole: bool = False,
    ) -> None:
        """Ask nothing yet; *is_whole* reads more of the object than its metadata."""
        self._connect = connect
        self._path = path
        self._cure = cure
        self._is_whole = is_whole
        self._version = _FROM_CACHE

    def read(self) -> Mapping[str, Any]:
        return self.checked("GET", self._get())

    def find(self) -> Mapping[str, Any] | None:
        """Return the object; None where it does not exist."""
        answer = self._get()
        return None if answer.status == NOT_FOUND else self.checked("GET", answer)

    def apply(self, body: Mapping[str, Any]) -> Answer:
        """Apply *body*, overriding other managers; any HTTP status is an answer."""
        query = {"fieldManager": FIELD_MANAGER}
        answer = self._patch(query, body)
        if answer.status != 409:
            return answer
        conflicts = [
            f"{cause.get('field')}: {cause.get('message')}"
            for cause in parts(part(answer.body, "details"), "causes")
            if cause.get("reason") == "FieldManagerConflict"
        ]
        if not conflicts:
            return answer
        # Two writers on one field: our measured value wins, and the log names the other writer.
        _log.warning("labels taken over", object=self._path, conflicts=conflicts)
        return self._patch({**query, "force": "true"}, body)

    def try_out(self, body: Mapping[str, Any]) -> Answer:
        """Return the API server's answer to *body* in a dry run."""
        query = {"fieldManager": FIELD_MANAGER, "dryRun": "All", "force": "true"}
        return self._connect().apply(self._path, query, body)

    def delete(self) -> None:
        """Delete the object if it exists."""
        answer = self._connect().delete(self._path)
        self._version = _NEWEST
        if answer.status not in (*_OK, 202, NOT_FOUND):
            self.checked("DELETE", answer)

    def checked(self, method: str, answer: Answer) -> Mapping[str, Any]:
        if answer.status in _OK:
            return answer.body
        raise ApiUnavailable(
            f"{method} {self._connect().host}{self._path}: {answer.problem}",
            self._cure(answer.status),
            retry_after_s=answer.retry_after_s,
        )

    def _get(self) -> Answer:
        api, asked = self._connect(), self._version
        # In case this fails: a restored etcd might never reach the seen version.
        self._version = asked if asked == _NEWEST else _FROM_CACHE
        get = api.get if self._is_whole else api.get_metadata
        answer = get(self._path, {"resourceVersion": asked})
        if answer.status in _OK:
            # Not older than our own last write, or a lagging cache would have us write again.
            self._version = asked or _version(answer)
        return answer

    def _patch(self, query: Mapping[str, str], body: Mapping[str, Any]) -> Answer:
        before, self._version = self._version, _NEWEST
        answer = self._connect().apply(self._path, query, body)
        if answer.status in _OK:
            self._version = _version(answer)
        elif answer.status < _UNKNOWN:
            self._version = before
        return answer


def _version(answer: Answer) -> str:
    return str(part(answer.body, "metadata").get("resourceVersion") or _NEWEST)


def cure(status: int) -> str:
    """Return the cure for a refusal that does not depend on the object."""
    match status:
        case 401:
            return "check the token in the kubeconfig, or the service account of the pod"
        case 409 | 422:
            return "the object changed meanwhile or was created anew; the next attempt reads it"
        case _:
            return "it is tried again later"


class Labelled(Struct, frozen=True, kw_only=True):
    """The labels and annotations of an object as it was read."""

    uid: str  # metadata.uid
    labels: Mapping[str, str]
    owned: frozenset[str]  # applied by the field manager in question, and still there
    others: frozenset[str]  # owned by another field manager, too or alone
    annotations: Mapping[str, str]  # all
    owned_annotations: frozenset[str]  # applied by the field manager in question


def labelled(metadata: Mapping[str, Any], manager: str) -> Labelled:
    """Return the labels in *metadata*, and which of them *manager* owns by server-side apply."""
    labels, annotations = texts(metadata, "labels"), texts(metadata, "annotations")
    others = (
        field_keys(entry, _LABELS)
        for entry in parts(metadata, "managedFields")
        if not _is_applied_by(entry, manager)
    )
    return Labelled(
        uid=str(metadata.get("uid") or ""),
        labels=labels,
        owned=owned_keys(metadata, manager, _LABELS) & labels.keys(),
        others=frozenset().union(*others) & labels.keys(),
        annotations=annotations,
        owned_annotations=owned_keys(metadata, manager, _ANNOTATIONS) & annotations.keys(),
    )


def owned_keys(metadata: Mapping[str, Any], manager: str, path: tuple[str, ...]) -> frozenset[str]:
    """Return the keys below *path* in the object that *manager* owns by server-side apply."""
    entries = parts(metadata, "managedFields")
    ours = (field_keys(entry, path) for entry in entries if _is_applied_by(entry, manager))
    return frozenset().union(*ours)


def other_managers(
    metadata: Mapping[str, Any], fields: Collection[str], below: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return the other field managers that own one of *fields* below the path *below*, sorted.

    Empty also where the API server leaves ``managedFields`` out.
    """
    entries = parts(metadata, "managedFields")
    owners = {
        str(entry.get("manager")) for entry in entries if field_keys(entry, below) & set(fields)
    }
    return tuple(sorted(owners - {FIELD_MANAGER}))


def field_keys(entry: Mapping[str, Any], path: tuple[str, ...]) -> frozenset[str]:
    """Return the keys below *path* that an *entry* of ``managedFields`` names."""
    fields = part(entry, "fieldsV1")
    for name in path:
        fields = part(fields, f"f:{name}")
    return frozenset(name.removeprefix("f:") for name in fields if name != ".")


def _is_applied_by(entry: Mapping[str, Any], manager: str) -> bool:
    return (
        entry.get("manager") == manager
        and entry.get("operation") == "Apply"
        and not entry.get("subresource")
    )
