"""The NodeResourceTopology of one Node, and the placement annotation on its pods.

Both are written by server-side apply and only when they change.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import structlog

from nodetopo.components.zones.node_resource_topology import (
    API_VERSION,
    CONTENT,
    KIND,
    PLURAL,
    has_content,
    is_marked,
)
from nodetopo.components.zones.observed import ANNOTATION
from nodetopo.errors import ApiUnavailable
from nodetopo.formats.responses import part, parts, texts
from nodetopo.kubeapi import apply
from nodetopo.kubeapi.apply import FIELD_MANAGER, AppliedObject, Connect, other_managers, owned_keys
from nodetopo.kubeapi.client import LATER, Answer

_OK = 200
_UNAUTHORIZED = 401
_FORBIDDEN = 403
_NOT_FOUND = 404

_CONFLICT = 409
"""It is another pod by now, or another program wrote the annotation between the two requests."""

_PERMANENT = {"GET": (_FORBIDDEN,), "PATCH": (400, _FORBIDDEN, 422, 500)}
"""By method: the same request would be refused again, for a missing right, by an admission
policy, or, with 500, because a webhook for this pod does not answer."""

_FROM_CACHE, _NEWEST = "0", ""
"""As a resourceVersion: the API server's cached state, or etcd's latest."""

_ANNOTATIONS = ("metadata", "annotations")


class NodeZonesPublisher:
    """Keep one NodeResourceTopology up to date. The connection is made at the first use.

    A cluster has one producer of these objects: NFD's topology updater, the resource topology
    exporter, or this one. An object that another producer has filled is left alone.
    """

    def __init__(self, connect: Connect, node: str) -> None:
        """Send no request yet; *node* is the name of the Node, and of the object."""
        self._node = node
        self._connect = connect
        path = f"/apis/{API_VERSION}/{PLURAL}/{quote(node, safe='')}"
        self._object = AppliedObject(self._connect, path, self._cure, is_whole=True)
        self._owner: Mapping[str, Any] | None = None
        # The field managers of another producer's object; ``None`` if it is ours or unowned. Empty
        # if the API server does not name the program that filled it.
        self.left_to: tuple[str, ...] | None = None
        self.writes = 0  # how many were made

    @property
    def place(self) -> str:
        """The object, as ``kubectl`` names it."""
        return f"noderesourcetopology/{self._node}"

    def publish(self, content: Mapping[str, Any]) -> bool:
        """Write *content* to the object; return ``False`` if it is another producer's.

        The Node owns it, so that it is deleted together with the Node.
        """
        existing = self._object.find()
        left_to = None
        if existing is not None and has_content(existing) and not is_marked(existing):
            left_to = other_managers(part(existing, "metadata"), CONTENT)
        if left_to is not None and left_to != self.left_to:
            structlog.get_logger().warning(
                "NodeResourceTopology left to its producer",
                object=self.place,
                producers=list(left_to) or ["unknown"],
                cure="stop that producer and delete the object, or switch publish-zones off",
            )
        self.left_to = left_to
        if left_to is not None:
            return False

        if existing is None:
            self._owner = None  # if the Node was recreated, its uid is another
        if self._owner is None:
            self._owner = self._read_owner()
        owners = [self._owner] if self._owner else []
        if existing is not None:
            is_same = all(
                (existing.get(field) or None) == (content.get(field) or None) for field in CONTENT
            )
            uids = {
                owner.get("uid") for owner in parts(part(existing, "metadata"), "ownerReferences")
            }
            if is_same and all(owner["uid"] in uids for owner in owners):
                return True
        metadata = {"name": self._node, **({"ownerReferences": owners} if owners else {})}
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, **content}
        self._object.checked("PATCH", self._object.apply(body))
        self.writes += 1
        return True

    def forget_owner(self) -> None:
        """Read the Node again before the next write: it was recreated, with another uid."""
        self._owner = None

    def _read_owner(self) -> Mapping[str, Any] | None:
        """Return the Node as an owner; ``None`` without the right to read it."""
        path = f"/api/v1/nodes/{quote(self._node, safe='')}"
        answer = self._connect().get_metadata(path, {"resourceVersion": _FROM_CACHE})
        uid = part(answer.body, "metadata").get("uid")
        if answer.status == _OK and uid:
            return {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": uid}
        if answer.status in (_UNAUTHORIZED, _FORBIDDEN):
            # The zones, which schedulers place pods by, are more important than the clean-up.
            return None
        problem = answer.body.get("message") or f"HTTP {answer.status}"
        raise ApiUnavailable(  # also without such a Node: nothing would delete the object
            f"GET {self._connect().host}{path}: {problem}",
            apply.cure(answer.status),
            retry_after_s=answer.retry_after_s,
        )

    def _cure(self, status: int) -> str:
        match status:
            case 403:
                return f"grant `get`, `create` and `patch` on {PLURAL}.topology.node.k8s.io"
            case 404:
                return (
                    "install the CustomResourceDefinition of NodeResourceTopology "
                    "(noderesourcetopology-api, manifests/crd.yaml), or switch publish-zones off"
                )
            case _:
                return apply.cure(status)


class Pod(NamedTuple):
    """A pod from the kubelet's list, which has no uid."""

    namespace: str
    name: str
    # A new number after the pod was absent, since it can be another pod of the same name.
    appearance: int = 0


class ObservedPlacementPublisher:
    """Keep the annotation on the pods of one node; the connection is made at the first use.

    It gives KAI Scheduler the NUMA nodes of each pod, and is written once per pod. KAI Scheduler
    has an exporter that does the same; annotations by this or any other program are left alone.
    """

    def __init__(self, connect: Connect, node: str) -> None:
        """Send no request yet; *node* is the name of the Node that the pods run on."""
        self._connect = connect
        self._node = node
        self._done: dict[Pod, str] = {}
        self._left: set[Pod] = set()
        self.writes = 0  # number of writes
        # Permanent refusals by the API server, each for one pod; :meth:`republish` retries them,
        # and they do not delay other pods.
        self.refusals = 0

    @property
    def left(self) -> int:
        """How many pods have an annotation that another program wrote."""
        return len(self._left)

    def publish(self, wanted: Mapping[Pod, str]) -> None:
        """Annotate every pod in *wanted* with its value.

        Annotated pods are not reread, and annotations that are no longer in *wanted* stay: a
        placement lasts as long as its pod.
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
        """Publish to annotated pods too: they may be other pods by now."""
        self._done = {}
        self.publish(wanted)

    def _annotate(self, pod: Pod, value: str) -> bool:
        """Annotate *pod* with *value* unless another program did; ``False`` to try it again."""
        path = f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}"
        answer = self._connect().get(path, {"resourceVersion": _FROM_CACHE})
        if answer.status == _NOT_FOUND:  # its memory can be behind the kubelet's
            answer = self._connect().get(path, {"resourceVersion": _NEWEST})
        if answer.status == _NOT_FOUND or not self._is_accepted("GET", path, answer):
            return True
        if part(answer.body, "spec").get("nodeName") != self._node:
            return True  # by now another pod of that name, on another node

        metadata = part(answer.body, "metadata")
        present = texts(metadata, "annotations").get(ANNOTATION)
        is_ours = ANNOTATION in owned_keys(metadata, FIELD_MANAGER, _ANNOTATIONS)
        if present is not None and not is_ours:
            if not self._left:
                structlog.get_logger().warning(
                    "placement of pods left to another program",
                    pod=f"{pod.namespace}/{pod.name}",
                    programs=list(other_managers(metadata, (ANNOTATION,), _ANNOTATIONS)),
                    cure="run KAI's placement exporter or annotate-pods, not both",
                )
            self._left.add(pod)
            return True
        if present == value:
            return True

        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            # With its uid this can neither create a pod nor change another of the same name.
            "metadata": {
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": metadata.get("uid"),
                "annotations": {ANNOTATION: value},
            },
        }
        answer = self._connect().apply(path, {"fieldManager": FIELD_MANAGER}, body)
        if answer.status == _CONFLICT:
            return False
        if answer.status != _NOT_FOUND and self._is_accepted("PATCH", path, answer):
            self._left.discard(pod)
            self.writes += 1
        return True

    def _is_accepted(self, method: str, path: str, answer: Answer) -> bool:
        """Return whether the request succeeded; log a permanent failure."""
        if answer.status == _OK:
            return True
        message = answer.body.get("message") or f"HTTP {answer.status}"
        problem = f"{method} {self._connect().host}{path}: {message}"
        if answer.status not in _PERMANENT[method]:
            raise ApiUnavailable(
                problem, apply.cure(answer.status), retry_after_s=answer.retry_after_s
            )
        self.refusals += 1
        structlog.get_logger().warning(
            "placement of a pod refused", error=problem, cure="grant `get` and `patch` on pods"
        )
        return False
