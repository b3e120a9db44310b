"""The annotation on pods that tells KAI Scheduler which NUMA nodes they got, written once for each.

KAI Scheduler brings an exporter that does the same; an annotation that it or anybody else wrote is
left as it is.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import structlog

from agent.errors import ApiUnavailable
from agent.formats.responses import part, texts
from agent.kubeapi import apply
from agent.kubeapi.apply import FIELD_MANAGER, Connect
from agent.kubeapi.client import LATER, Answer
from agent.kubeapi.managers import other_managers
from agent.kubeapi.owned import owned_keys
from agent.zones.observed import ANNOTATION

_ANNOTATIONS = ("metadata", "annotations")
_OK = 200
_NOT_FOUND = 404
_CHANGED = 409
"""It is another pod by now, or another program wrote the annotation between the two requests."""

_FROM_CACHE, _NEWEST = "0", ""
"""As a resourceVersion: what the API server has in memory, or what etcd has."""

_FOR_GOOD = {"GET": (403,), "PATCH": (400, 403, 422, 500)}
"""By method: the same request would be refused again, for a right that is missing, by an admission
policy, or, with 500, because a webhook that is asked about this pod does not answer."""


class Pod(NamedTuple):
    """A pod as the kubelet tells of it, which is without its uid.

    Attributes:
        appearance: another number for one that was away and came back, which may be another pod
            of the same name.
    """

    namespace: str
    name: str
    appearance: int = 0


class ObservedPlacementPublisher:
    """Keeps the annotation of the pods of one node; the connection is made at the first use.

    Attributes:
        writes: how many were made.
        refusals: how many the API server refused for good, of one pod each; they are tried again
            by :meth:`republish`, and keep no other pod waiting.
    """

    def __init__(self, connect: Connect, node: str) -> None:
        """Ask nothing yet; *node* is the name of the Node that the pods run on."""
        self._connect = connect
        self._node = node
        self._done: dict[Pod, str] = {}
        self._left: set[Pod] = set()
        self.writes = 0
        self.refusals = 0

    @property
    def left(self) -> int:
        """How many pods have an annotation that another program wrote."""
        return len(self._left)

    def publish(self, wanted: Mapping[Pod, str]) -> None:
        """Make every pod in *wanted* carry its value.

        Pods that had theirs from here are not asked for again, and annotations that are not
        wanted any more stay: a placement lasts as long as its pod.

        Raises:
            ApiUnavailable: some pods may lack theirs.
        """
        self._done = {pod: value for pod, value in self._done.items() if pod in wanted}
        self._left &= wanted.keys()
        changed = 0
        for pod, value in sorted(wanted.items()):
            if self._done.get(pod) == value:
                continue
            if self._annotate(pod, value):
                self._done[pod] = value
            else:
                changed += 1
        if changed:
            raise ApiUnavailable(f"{changed} pods changed while they were annotated", LATER)

    def republish(self, wanted: Mapping[Pod, str]) -> None:
        """Do so for pods that had theirs, too: they may be others of the same name by now.

        Raises:
            ApiUnavailable: some pods may lack theirs.
        """
        self._done = {}
        self.publish(wanted)

    def _annotate(self, pod: Pod, value: str) -> bool:
        """Make *pod* carry *value*, if that is up to us; tell whether no more is to be done now."""
        path = f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}"
        found = self._find(path)
        if found is None or part(found, "spec").get("nodeName") != self._node:
            return True  # gone; or by now another pod of that name, on another node
        metadata = part(found, "metadata")
        there = texts(metadata, "annotations").get(ANNOTATION)
        is_ours = ANNOTATION in owned_keys(metadata, FIELD_MANAGER, _ANNOTATIONS)
        if there is not None and not is_ours:
            self._leave(pod, metadata)
            return True
        return there == value or self._apply(path, pod, metadata, value)

    def _find(self, path: str) -> Mapping[str, Any] | None:
        for version in (_FROM_CACHE, _NEWEST):  # its memory can be behind the kubelet's
            answer = self._connect().get(path, {"resourceVersion": version})
            if answer.status != _NOT_FOUND:
                return answer.body if self._is_taken("GET", path, answer) else None
        return None

    def _apply(self, path: str, pod: Pod, metadata: Mapping[str, Any], value: str) -> bool:
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            # With its uid this can neither create a pod nor meet another of the same name.
            "metadata": {
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": metadata.get("uid"),
                "annotations": {ANNOTATION: value},
            },
        }
        answer = self._connect().apply(path, {"fieldManager": FIELD_MANAGER}, body)
        if answer.status == _CHANGED:
            return False
        if answer.status != _NOT_FOUND and self._is_taken("PATCH", path, answer):
            self._left.discard(pod)
            self.writes += 1
        return True

    def _leave(self, pod: Pod, metadata: Mapping[str, Any]) -> None:
        if not self._left:
            structlog.get_logger().warning(
                "placement of pods left to another program",
                pod=f"{pod.namespace}/{pod.name}",
                programs=list(other_managers(metadata, (ANNOTATION,), _ANNOTATIONS)),
                cure="run KAI's placement exporter or annotate-pods, not both",
            )
        self._left.add(pod)

    def _is_taken(self, method: str, path: str, answer: Answer) -> bool:
        """Tell whether the API server did what it was asked, and say so if it never will."""
        if answer.status == _OK:
            return True
        said = answer.body.get("message") or f"HTTP {answer.status}"
        problem = f"{method} {self._connect().host}{path}: {said}"
        if answer.status not in _FOR_GOOD[method]:
            raise ApiUnavailable(
                problem, apply.cure(answer.status), retry_after_s=answer.retry_after_s
            )
        self.refusals += 1
        structlog.get_logger().warning(
            "placement of a pod refused", error=problem, cure="grant `get` and `patch` on pods"
        )
        return False
