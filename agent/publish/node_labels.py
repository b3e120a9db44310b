"""The labels on the Node object, written by server-side apply and only when they change.

What the API server does with an apply is in "Server-Side Apply" of the Kubernetes reference:
fields that the manager owned and no longer sends are removed, fields of other managers
cause a conflict that *force* overrides. Each label is a field of its own.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import structlog

from agent.errors import ApiUnavailable
from agent.publish.api import Answer, Api
from agent.publish.owned import Labelled, labelled

FIELD_MANAGER = "nodetopo"

_FROM_CACHE = "0"
"""As a resourceVersion: whatever the API server has in memory will do (API concepts)."""

_Items = tuple[tuple[str, str], ...]
"""Labels as (key, value)."""

_log = structlog.get_logger()


class NodeLabelPublisher:
    """Keeps the labels of one Node as they should be. Not safe to share between threads.

    The connection is made at the first use. Nodes are never created: the uid of the Node
    that was read goes with the patch, and the API server refuses a patch for any other.
    """

    def __init__(self, kubeconfig: Path | None, node: str) -> None:
        self._kubeconfig = kubeconfig
        self._node = node
        self._path = f"/api/v1/nodes/{quote(node, safe='')}"
        self._api: Api | None = None
        self._seen_version = _FROM_CACHE
        self._refused: frozenset[tuple[str, str]] = frozenset()

    @property
    def refused(self) -> frozenset[tuple[str, str]]:
        """Labels, as (key, value), that the API server does not accept; not sent again."""
        return self._refused

    def publish(self, labels: Mapping[str, str], *, complete: bool = False) -> bool:
        """Make the Node carry *labels*; return whether that took a write.

        Own labels that are absent from *labels* are removed when the scan was *complete*,
        and else keep their value. Labels of others are not touched.

        Raises:
            ApiUnavailable: nothing is certain to be written; try again after
                *retry_after_s*, or in your own time if that is ``None``.
        """
        now = self._read()
        wanted = self._acceptable(labels, now, complete=complete)
        if not _differs(now, wanted):
            return False
        answer = self._apply(now, wanted)
        if answer.status == 422:
            self._refuse_invalid(now, labels)
            wanted = self._acceptable(labels, now, complete=complete)
            if not _differs(now, wanted):
                return False
            answer = self._apply(now, wanted)
        self._seen_version = labelled(self._checked("PATCH", answer), FIELD_MANAGER).version
        return True

    def _connected(self) -> Api:
        if self._api is None:
            self._api = Api(self._kubeconfig)
        return self._api

    def _read(self) -> Labelled:
        # Not older than our own last write, or a lagging cache would have us write again.
        version, self._seen_version = self._seen_version, _FROM_CACHE
        answer = self._connected().get_metadata(self._path, {"resourceVersion": version})
        now = labelled(self._checked("GET", answer), FIELD_MANAGER)
        self._seen_version = version
        return now

    def _acceptable(
        self,
        labels: Mapping[str, str],
        now: Labelled,
        *,
        complete: bool,
    ) -> dict[str, str]:
        kept = {} if complete else {key: now.labels[key] for key in now.owned}
        return kept | {
            key: value for key, value in labels.items() if (key, value) not in self._refused
        }

    def _apply(self, now: Labelled, labels: Mapping[str, str]) -> Answer:
        api = self._connected()
        body = _patch(self._node, now.uid, labels)
        query = {"fieldManager": FIELD_MANAGER}
        answer = api.apply(self._path, query, body)
        if answer.status != 409 or not (owners := _conflicts(answer.body)):
            return answer
        # Two writers on one label: ours is measured, so it wins, and the log says against whom.
        _log.warning("labels taken over", node=self._node, conflicts=owners)
        return api.apply(self._path, {**query, "force": "true"}, body)

    def _refuse_invalid(self, now: Labelled, labels: Mapping[str, str]) -> None:
        # The control of the experiment: refused even without labels, none of them is at fault.
        self._checked("PATCH", self._dry_run(now, ()))
        found = frozenset(self._invalid(now, tuple(sorted(labels.items()))))
        for key, value in sorted(found - self._refused):
            _log.error("label refused by the API server", node=self._node, key=key, value=value)
        self._refused |= found

    def _invalid(self, now: Labelled, items: _Items) -> _Items:
        """Return which of *items* the API server refuses, by halving and asking dry.

        One bad value makes it refuse the whole patch, without saying which it was.
        """
        answer = self._dry_run(now, items)
        if answer.status != 422:
            self._checked("PATCH", answer)
            return ()
        if len(items) <= 1:
            return items
        middle = len(items) // 2
        return self._invalid(now, items[:middle]) + self._invalid(now, items[middle:])

    def _dry_run(self, now: Labelled, items: _Items) -> Answer:
        query = {"fieldManager": FIELD_MANAGER, "dryRun": "All", "force": "true"}
        return self._connected().apply(self._path, query, _patch(self._node, now.uid, dict(items)))

    def _checked(self, method: str, answer: Answer) -> Mapping[str, Any]:
        if answer.status == 200:
            return answer.body
        said = answer.body.get("message") or f"HTTP {answer.status}"
        raise ApiUnavailable(
            f"{method} {self._connected().host}{self._path}: {said}",
            _cure(answer.status, self._node),
            retry_after_s=answer.retry_after_s,
        )


def _differs(now: Labelled, wanted: Mapping[str, str]) -> bool:
    is_changed = any(now.labels.get(key) != value for key, value in wanted.items())
    return is_changed or not now.owned <= wanted.keys()


def _patch(node: str, uid: str, labels: Mapping[str, str]) -> dict[str, Any]:
    metadata = {"name": node, "uid": uid, "labels": dict(sorted(labels.items()))}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def _conflicts(status: Mapping[str, Any]) -> list[str]:
    causes = (status.get("details") or {}).get("causes") or ()
    return [
        f"{cause.get('field')}: {cause.get('message')}"
        for cause in causes
        if cause.get("reason") == "FieldManagerConflict"
    ]


def _cure(status: int, node: str) -> str:
    match status:
        case 401:
            return "check the token in the kubeconfig, or the service account of the pod"
        case 403:
            return "grant `get` and `patch` on nodes to the account of the kubeconfig or pod"
        case 404:
            return f"check --node-name: the cluster has no node {node!r}; none is created"
        case 409 | 422:
            return "the Node changed meanwhile or was created anew; the next attempt reads it"
        case _:
            return "it is tried again later"
