"""The NodeResourceTopology of one Node, written by server-side apply and only when it changes.

A cluster has one producer of these objects: NFD's topology updater, the resource topology exporter,
or this one. An object that somebody else has filled is left as it is.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import structlog

from agent.errors import ApiUnavailable
from agent.formats.responses import part, parts
from agent.kubeapi import apply
from agent.kubeapi.apply import AppliedObject, Connect
from agent.kubeapi.managers import other_managers
from agent.zones.node_resource_topology import (
    API_VERSION,
    CONTENT,
    KIND,
    PLURAL,
    has_content,
    is_marked,
)

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
