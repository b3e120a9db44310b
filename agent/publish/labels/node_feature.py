"""The labels as a NodeFeature object, which NFD's master turns into labels of the Node.

The right to write such an object in the own namespace takes the place of the right to patch
Nodes. NFD finds the Node by a label of the object, and joins the objects of a Node: first those of
its own namespace, then by name, and what comes later counts (nfd v0.19.0,
pkg/nfd-master/nfd-master.go, getAndMergeNodeFeatures).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agent.kubeapi import apply
from agent.kubeapi.apply import FIELD_MANAGER, AppliedObject, Connect, connection
from agent.kubeapi.owned import owned_keys
from agent.publish.labels.label_screen import LabelScreen
from agent.publish.labels.label_wish import NOTHING, LabelWish
from agent.publish.labels.output import LabelChanges, compare
from agent.publish.labels.output_names import NODE_FEATURE
from agent.publish.labels.pod_owner import Owners, owners_through_pod

API_VERSION = "nfd.k8s-sigs.io/v1alpha1"
NODE_NAME_LABEL = "nfd.node.kubernetes.io/node-name"

_LABELS = ("spec", "labels")
"""Where they are in the object."""

LONGEST_NODE = 63
"""Characters of the name of a Node that NFD can find: it is the value of that label."""


class NodeFeaturePublisher:
    """Keeps one NodeFeature object, all of which is ours; a LabelOutput."""

    name = NODE_FEATURE
    needs_api = True
    is_on_node = False

    def __init__(
        self,
        kubeconfig: Path | None,
        node: str,
        *,
        namespace: str,
        pod: str | None = None,
        connect: Connect | None = None,
    ) -> None:
        """Ask nothing yet.

        Args:
            kubeconfig: of the API server; ``None`` for the one of this pod.
            node: the name of the Node that the labels are for.
            namespace: of the object, and of *pod*.
            pod: the one that this program runs in, whose owner is to own the object; ``None``
                leaves the object without one.
            connect: shared with others that *kubeconfig* would be asked for.
        """
        self._connect = connect or connection(kubeconfig)
        self._node = node
        self._namespace = namespace
        self._pod = pod
        self._name = f"nodetopo-{node}"
        collection = f"/apis/{API_VERSION}/namespaces/{quote(namespace, safe='')}/nodefeatures"
        path = f"{collection}/{quote(self._name, safe='')}"
        self._object = AppliedObject(self._connect, path, self._cure, is_whole=True)
        self._screen = LabelScreen(self.place)
        self._owners: Owners | None = () if pod is None else None

    @property
    def place(self) -> str:
        """The object, as ``kubectl`` names it, and its namespace."""
        return f"nodefeature/{self._name} in {self._namespace}"

    @property
    def refused(self) -> frozenset[tuple[str, str]]:
        """Labels, as (key, value), that NFD would not take; not sent."""
        return self._screen.refused

    def changes(self, wish: LabelWish, *, complete: bool = False) -> LabelChanges:
        """Return what :meth:`publish` would change.

        Raises:
            ApiUnavailable: the object cannot be read.
        """
        found = self._object.find()
        spec, metadata = ((found or {}).get(part) or {} for part in ("spec", "metadata"))
        there = spec.get("labels") or {}
        is_stale = (metadata.get("labels") or {}).get(NODE_NAME_LABEL) != self._node or any(
            owner["uid"] not in _uids(metadata) for owner in self._known_owners()
        )
        return compare(
            there,
            owned_keys(metadata, FIELD_MANAGER, _LABELS) & there.keys(),
            self._screen.passing(wish.labels),
            keep=wish.unread if complete else None,
            is_there=found is not None,
            is_stale=is_stale,
        )

    def publish(self, wish: LabelWish, *, complete: bool = False) -> LabelChanges:
        """Make the object hold the labels of *wish*; return what that changed.

        Raises:
            ApiUnavailable: nothing is certain to be written.
        """
        found = self.changes(wish, complete=complete)
        if found:
            body = self._body({**found.kept, **self._screen.passing(wish.labels)})
            self._object.checked("PATCH", self._object.apply(body))
        return found

    def remove(self) -> LabelChanges:
        """Delete the object; return what went with it.

        Raises:
            ApiUnavailable: it may still be there.
        """
        self._owners = ()
        found = self.changes(NOTHING, complete=True)
        if found.is_there:
            self._object.delete()
        return found

    def is_disturbed(self, node: Mapping[str, Any]) -> bool:
        """Return ``False``: the Node says nothing of the object."""
        del node
        return False

    def _known_owners(self) -> Owners:
        if self._owners is None and self._pod is not None:
            self._owners = owners_through_pod(self._connect, self._namespace, self._pod)
        return self._owners or ()

    def _body(self, labels: Mapping[str, str]) -> dict[str, Any]:
        metadata: dict[str, Any] = {
            "name": self._name,
            "namespace": self._namespace,
            "labels": {NODE_NAME_LABEL: self._node},
        }
        if owners := self._known_owners():
            metadata["ownerReferences"] = list(owners)
        spec = {"features": {}, "labels": dict(sorted(labels.items()))}
        return {
            "apiVersion": API_VERSION,
            "kind": "NodeFeature",
            "metadata": metadata,
            "spec": spec,
        }

    def _cure(self, status: int) -> str:
        match status:
            case 403:
                return (
                    "grant `get`, `create`, `patch` and `delete` on nodefeatures.nfd.k8s-sigs.io "
                    f"in the namespace {self._namespace}"
                )
            case 404:
                return "install Node Feature Discovery, and check the namespace"
            case 422 if len(self._node) > LONGEST_NODE:
                limit = f"names of nodes of {LONGEST_NODE} characters at most"
                return f"use another of the label-outputs: NFD's objects take {limit}"
            case _:
                return apply.cure(status)


def _uids(metadata: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(owner.get("uid", "") for owner in metadata.get("ownerReferences") or ())
