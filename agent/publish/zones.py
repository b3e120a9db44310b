"""The NodeResourceTopology of one Node, written by server-side apply and only when it changes.

A cluster has one producer of these objects: NFD's topology updater, the resource topology exporter,
or this one. An object that somebody else has filled is left as it is.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import structlog

from agent.errors import ApiUnavailable
from agent.formats.responses import part, parts, texts
from agent.kubeapi import apply
from agent.kubeapi.apply import FIELD_MANAGER, AppliedObject, Connect, other_managers, owned_keys
from agent.kubeapi.client import LATER, Answer
from agent.zones.node_resource_topology import (
    API_VERSION,
    CONTENT,
    KIND,
    PLURAL,
    has_content,
    is_marked,
)
from agent.zones.observed import ANNOTATION

# The annotation on pods that tells KAI Scheduler which NUMA nodes they got, written once for each.
#
# KAI Scheduler brings an exporter that does the same; an annotation that it or anybody else wrote
# is left as it is.

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


_REFUSED = (401, 403)


class NodeZonesPublisher:
    """Keeps one object as it should be. The connection is made at the first use.

    Attributes:
        writes: how many were made.
    """

    def __init__(self, connect: Connect, node: str) -> None:
        """Ask nothing yet; *node* is the name of the Node, and of the object."""
        self._node = node
        self._connect = connect
        path = f"/apis/{API_VERSION}/{PLURAL}/{quote(node, safe='')}"
        self._object = AppliedObject(self._connect, path, self._cure, is_whole=True)
        self._owner: tuple[Mapping[str, Any], ...] | None = None
        self._left_to: tuple[str, ...] | None = None
        self.writes = 0

    @property
    def place(self) -> str:
        """The object, as ``kubectl`` names it."""
        return f"noderesourcetopology/{self._node}"

    @property
    def left_to(self) -> tuple[str, ...] | None:
        """The field managers of another producer's object; ``None`` where it is ours, or nobody's.

        Empty where the API server does not tell who filled it.
        """
        return self._left_to

    def publish(self, content: Mapping[str, Any]) -> bool:
        """Make the object say *content*; return ``False`` if it is another's, and left alone.

        The Node owns it, so that it goes when the Node goes.

        Raises:
            ApiUnavailable: nothing is certain to be written.
        """
        found = self._object.find()
        if self._is_anothers(found):
            return False
        if found is None:
            self._owner = None  # where the Node was created anew, its uid is another
        metadata = self._metadata()
        if found is not None and _says(found, content) and _has_owner(found, metadata):
            return True
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, **content}
        self._object.checked("PATCH", self._object.apply(body))
        self.writes += 1
        return True

    def forget_owner(self) -> None:
        """Have the Node read again before the next write: it was created anew, with another uid."""
        self._owner = None

    def _is_anothers(self, found: Mapping[str, Any] | None) -> bool:
        """Tell whether somebody else filled the object, and say so when that changes."""
        is_theirs = found is not None and has_content(found) and not is_marked(found)
        theirs = other_managers(part(found, "metadata"), CONTENT) if found and is_theirs else None
        if theirs is not None and theirs != self._left_to:
            structlog.get_logger().warning(
                "NodeResourceTopology left to its producer",
                object=self.place,
                producers=list(theirs) or ["unknown"],
                cure="stop that producer and delete the object, or switch publish-zones off",
            )
        self._left_to = theirs
        return is_theirs

    def _metadata(self) -> Mapping[str, Any]:
        if self._owner is None:
            self._owner = self._read_owner()
        owners = {"ownerReferences": list(self._owner)} if self._owner else {}
        return {"name": self._node, **owners}

    def _read_owner(self) -> tuple[Mapping[str, Any], ...] | None:
        path = f"/api/v1/nodes/{quote(self._node, safe='')}"
        answer = self._connect().get_metadata(path, {"resourceVersion": "0"})
        uid = part(answer.body, "metadata").get("uid")
        if answer.status == 200 and uid:
            return ({"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": uid},)
        if answer.status in _REFUSED:
            # What schedulers place by matters more than that somebody may have to clean up.
            return None
        said = answer.body.get("message") or f"HTTP {answer.status}"
        raise ApiUnavailable(  # also without such a Node: nothing would take the object away
            f"GET {self._connect().host}{path}: {said}",
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


def _says(found: Mapping[str, Any], content: Mapping[str, Any]) -> bool:
    return all((found.get(field) or None) == (content.get(field) or None) for field in CONTENT)


def _has_owner(found: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    uids = {owner.get("uid") for owner in parts(part(found, "metadata"), "ownerReferences")}
    return all(owner["uid"] in uids for owner in metadata.get("ownerReferences", ()))
