"""Labels published by Node Feature Discovery (NFD): a feature file, or a NodeFeature object."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import structlog
from msgspec.structs import replace

from nodetopo.components.labels.outputs.output import (
    NFD_FILE,
    NODE_FEATURE,
    NOTHING,
    DesiredLabels,
    LabelChanges,
    compare,
    is_valid,
)
from nodetopo.deviceplugin.host_files import HostFile
from nodetopo.errors import ApiUnavailable, InputError
from nodetopo.kubeapi import apply
from nodetopo.kubeapi.apply import FIELD_MANAGER, AppliedObject, Connect, connection, owned_keys

MAX_BYTES = 65536
"""NFD skips a larger file (nfd v0.19, source/local/local.go, MaxFeatureFileSize)."""

UNSEEN_S = 1.1
"""NFD's worker looks at its directory as soon as anything happens there, and then ignores
everything for up to a second (nfd v0.19, source/local/local.go, runNotifier). It would notice the
temporary file, but not that it is renamed; until it looks by itself, a minute later, or never if
its ``core.sleepInterval`` is 0. A little longer than a second, because that is a timer's."""

API_VERSION = "nfd.k8s-sigs.io/v1alpha1"

NODE_NAME_LABEL = "nfd.node.kubernetes.io/node-name"

LONGEST_NODE = 63
"""Characters of the name of a Node that NFD can find: it is the value of that label."""

_LABELS = ("spec", "labels")
"""The field of the object with the labels."""

_REFUSED = (401, 403, 404)

Owners = tuple[Mapping[str, Any], ...]
"""Entries of ``metadata.ownerReferences``."""


class NfdFile:
    """Keep a feature file, which NFD's worker on the node reads and publishes; a LabelOutput.

    NFD (v0.19, source/local/local.go) reads ``key`` or ``key=value`` lines from every file of its
    directory, except hidden files and files over 64 KiB. A line that begins with ``#`` is a comment
    or a directive. The directive ``# +expiry-time=…`` lets the labels below it expire; it is not
    written, because labels would then be lost while this program is stopped, and the file would
    have to be rewritten periodically.

    This program owns the whole file. Only :meth:`remove` deletes it: labels persist after this
    program stops.
    """

    name = NFD_FILE
    needs_api = False
    is_on_node = False

    def __init__(self, path: Path, *, pause: Callable[[float], None] = time.sleep) -> None:
        """Touch nothing yet; a write takes a *pause* of :data:`UNSEEN_S`."""
        self._path = path
        self._file = HostFile(path, has_directory=True)  # NFD's worker is another user
        self._pause = pause
        self._filter = LabelFilter(str(path))

    @property
    def place(self) -> str:
        """The file."""
        return str(self._path)

    @property
    def refused(self) -> frozenset[tuple[str, str]]:
        """Labels, as (key, value), that NFD would not take; not written."""
        return self._filter.refused

    def changes(self, desired: DesiredLabels, *, complete: bool = False) -> LabelChanges:
        """Return what :meth:`publish` would change."""
        text = self._read()
        lines = (line.strip() for line in (text or "").split("\n"))
        pairs = (line.split("=", 1) for line in lines if not line.startswith("#") and "=" in line)
        present = {key: value for key, value in pairs if passes(key, value)}
        wanted = self._filter.passing(desired.labels)
        changes = compare(
            present,
            present,
            wanted,
            keep=desired.unread if complete else None,
            is_there=text is not None,
        )
        return replace(changes, is_stale=(text or "") != _text({**changes.kept, **wanted}))

    def publish(self, desired: DesiredLabels, *, complete: bool = False) -> LabelChanges:
        """Write the labels of *desired* into the file; return the changes."""
        changes = self.changes(desired, complete=complete)
        if not changes:
            return changes
        text = _text({**changes.kept, **self._filter.passing(desired.labels)})
        if len(text.encode()) > MAX_BYTES:
            raise InputError(f"{self._path}: over {MAX_BYTES} bytes", "NFD reads no such file")
        # The temporary file's name is one that NFD does not read.
        problem = self._file.write(text, pause=lambda: self._pause(UNSEEN_S))
        if problem is not None:
            raise self._error(problem)
        return changes

    def remove(self) -> LabelChanges:
        """Delete the file; return the labels that it had."""
        changes = self.changes(NOTHING, complete=True)
        if (problem := self._file.remove()) is not None:
            raise self._error(problem)
        return changes

    def is_disturbed(self, node: Mapping[str, Any]) -> bool:
        """Return ``False``: the Node does not show changes of the file."""
        del node
        return False

    def _read(self) -> str | None:
        """Return the file's text; ``None`` without a file."""
        found = self._file.read()
        if found.problem is not None:
            raise self._error(found.problem)
        return None if found.data is None else found.data.decode(errors="replace")

    def _error(self, problem: str) -> InputError:
        cure = f"is NFD installed, and its directory {self._path.parent} mounted with write access?"
        return InputError(problem, cure)


class NodeFeaturePublisher:
    """Keep a NodeFeature object, which NFD's master turns into labels of the Node; a LabelOutput.

    It needs permission to write such an object in its namespace instead of permission to patch
    Nodes. NFD finds the Node by a label of the object, and merges the objects of a Node: objects in
    NFD's namespace first, then by name, and later ones override (nfd v0.19.0,
    pkg/nfd-master/nfd-master.go, getAndMergeNodeFeatures).

    This program owns the whole object.
    """

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
        """Send no request yet.

        Args:
            kubeconfig: of the API server; ``None`` for the pod's own account.
            node: the name of the Node that the labels are for.
            namespace: of the object, and of *pod*.
            pod: the pod of this program, whose controller will own the object; ``None`` for an
                object without an owner.
            connect: a shared connection, instead of one by *kubeconfig*.
        """
        self._connect = connect or connection(kubeconfig)
        self._node = node
        self._namespace = namespace
        self._pod = pod
        self._name = f"nodetopo-{node}"
        collection = f"/apis/{API_VERSION}/namespaces/{quote(namespace, safe='')}/nodefeatures"
        path = f"{collection}/{quote(self._name, safe='')}"
        self._object = AppliedObject(self._connect, path, self._cure, is_whole=True)
        self._filter = LabelFilter(self.place)
        self._owners: Owners | None = () if pod is None else None

    @property
    def place(self) -> str:
        """The object, as ``kubectl`` names it, and its namespace."""
        return f"nodefeature/{self._name} in {self._namespace}"

    @property
    def refused(self) -> frozenset[tuple[str, str]]:
        """Labels, as (key, value), that NFD would not take; not sent."""
        return self._filter.refused

    def changes(self, desired: DesiredLabels, *, complete: bool = False) -> LabelChanges:
        """Return what :meth:`publish` would change."""
        existing = self._object.find()
        spec, metadata = ((existing or {}).get(part) or {} for part in ("spec", "metadata"))
        present = spec.get("labels") or {}
        uids = {owner.get("uid", "") for owner in metadata.get("ownerReferences") or ()}
        node_label = (metadata.get("labels") or {}).get(NODE_NAME_LABEL)
        is_stale = existing is not None and (
            node_label != self._node
            or any(owner["uid"] not in uids for owner in self._known_owners())
        )
        return compare(
            present,
            owned_keys(metadata, FIELD_MANAGER, _LABELS) & present.keys(),
            self._filter.passing(desired.labels),
            keep=desired.unread if complete else None,
            is_there=existing is not None,
            is_stale=is_stale,
        )

    def publish(self, desired: DesiredLabels, *, complete: bool = False) -> LabelChanges:
        """Write the labels of *desired* into the object; return the changes."""
        changes = self.changes(desired, complete=complete)
        if not changes:
            return changes
        metadata: dict[str, Any] = {
            "name": self._name,
            "namespace": self._namespace,
            "labels": {NODE_NAME_LABEL: self._node},
        }
        if owners := self._known_owners():
            metadata["ownerReferences"] = list(owners)
        labels = {**changes.kept, **self._filter.passing(desired.labels)}
        body = {
            "apiVersion": API_VERSION,
            "kind": "NodeFeature",
            "metadata": metadata,
            "spec": {"features": {}, "labels": dict(sorted(labels.items()))},
        }
        self._object.checked("PATCH", self._object.apply(body))
        return changes

    def remove(self) -> LabelChanges:
        """Delete the object; return its labels."""
        self._owners = ()
        changes = self.changes(NOTHING, complete=True)
        if changes.is_there:
            self._object.delete()
        return changes

    def is_disturbed(self, node: Mapping[str, Any]) -> bool:
        """Return ``False``: the Node does not show changes of the object."""
        del node
        return False

    def _known_owners(self) -> Owners:
        if self._owners is None and self._pod is not None:
            self._owners = owners_through_pod(self._connect, self._namespace, self._pod)
        return self._owners or ()

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


class LabelFilter:
    """Hold back labels that NFD would not publish unchanged, so that no bad label affects others.

    NFD's master skips bad labels one by one, but not all: a label below a domain that its settings
    both deny and allow, as ``denyLabelNs: ["*"]`` does, is sent on unchecked, and the API server
    then refuses all labels of the Node (nfd v0.19.0, pkg/nfd-master/nfd-master.go,
    filterFeatureLabel).
    """

    def __init__(self, place: str) -> None:
        """*place* is the name of the output in the log."""
        self._place = place
        # All labels held back so far, as (key, value).
        self.refused: frozenset[tuple[str, str]] = frozenset()

    def passing(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the *labels* that can be published; log each of the others once."""
        refused = frozenset(item for item in labels.items() if not passes(*item))
        for key, value in sorted(refused - self.refused):
            structlog.get_logger().error("label refused", place=self._place, key=key, value=value)
        self.refused |= refused
        return {key: value for key, value in labels.items() if (key, value) not in refused}


def passes(key: str, value: str) -> bool:
    """Return whether Kubernetes accepts the label and NFD keeps its key.

    NFD adds its domain to a key without one (nfd v0.19.0, pkg/nfd-master/nfd-master.go,
    addNsToMapKeys).
    """
    return "/" in key and is_valid(key, value)


def owners_through_pod(connect: Connect, namespace: str, pod: str) -> Owners:
    """Return the controller of *pod* as an owner, or the pod itself if it has none.

    With the DaemonSet as owner an object outlives the pods, which a rollout replaces, and the
    cluster's garbage collector deletes it after an uninstall. GFD uses its pod (k8s-device-plugin
    v0.19.0), which would be a write for each new pod.

    Empty if the API server does not let us read the pod: labels are more important than the
    clean-up.
    """
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}"
    answer = connect().get_metadata(path, {"resourceVersion": "0"})
    if answer.status in _REFUSED:
        problem = str(answer.body.get("message") or f"HTTP {answer.status}")
        structlog.get_logger().warning("owner of the pod not known", pod=pod, problem=problem)
        return ()
    if answer.status != 200:
        raise ApiUnavailable(
            f"GET {path}: HTTP {answer.status}",
            "it is tried again later",
            retry_after_s=answer.retry_after_s,
        )
    metadata = answer.body.get("metadata") or {}
    itself = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": metadata.get("uid")}
    controllers = (
        owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")
    )
    owner = next(controllers, itself)
    # One owner among others, which neither controls the object nor blocks deletion.
    return ({key: owner.get(key) for key in ("apiVersion", "kind", "name", "uid")},)


def _text(labels: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in sorted(labels.items()))
