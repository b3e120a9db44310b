"""The labels as a feature file, which NFD's worker on the node reads and publishes.

NFD (v0.19, source/local/local.go) takes ``key`` or ``key=value``, a line each, out of every file of
its directory whose name begins with no dot, and of none over 64 KiB. A line that begins with ``#``
is a comment or a directive. One of these, ``# +expiry-time=…``, ends the labels below it at a time;
we write none: labels would then be lost whenever this program is away, and the file would have
to be written again and again.
"""

import os
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import structlog

from agent.errors import ApiUnavailable, InputError
from agent.kubeapi import apply
from agent.kubeapi.apply import FIELD_MANAGER, AppliedObject, Connect, connection, owned_keys
from agent.publish.labels.output import (
    NFD_FILE,
    NODE_FEATURE,
    NOTHING,
    LabelChanges,
    LabelWish,
    compare,
    is_valid,
)

# What keeps labels back that NFD would not pass on as they are.


class LabelScreen:
    """For places that do not check what is put there, so that no bad label takes others with it.

    NFD's master skips bad labels one by one, but not all: one below a domain that its settings
    both deny and allow, as ``denyLabelNs: ["*"]`` does, is sent on unseen, and the API server then
    refuses all labels of the Node (nfd v0.19.0, pkg/nfd-master/nfd-master.go, filterFeatureLabel).
    """

    def __init__(self, place: str) -> None:
        """Name *place* in the log."""
        self._place = place
        self._refused: frozenset[tuple[str, str]] = frozenset()

    @property
    def refused(self) -> frozenset[tuple[str, str]]:
        """All that was kept back so far, as (key, value)."""
        return self._refused

    def passing(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return those of *labels* that may go on; the others are logged, once."""
        refused = frozenset(item for item in labels.items() if not passes(*item))
        for key, value in sorted(refused - self._refused):
            structlog.get_logger().error("label refused", place=self._place, key=key, value=value)
        self._refused |= refused
        return {key: value for key, value in labels.items() if (key, value) not in refused}


def passes(key: str, value: str) -> bool:
    """Tell whether Kubernetes takes the label, and NFD leaves its key alone.

    To one without a domain NFD adds its own (the same file, addNsToMapKeys).
    """
    return "/" in key and is_valid(key, value)


# Whose end is to take our objects along: what runs the pod that this program is in.
#
# With the DaemonSet as owner an object outlives the pods, which a rollout replaces, and the
# cluster's garbage collector deletes it after an uninstall. GFD names its pod as well
# (k8s-device-plugin v0.19.0), which would be a write at each new pod.

Owners = tuple[Mapping[str, Any], ...]
"""Entries of ``metadata.ownerReferences``."""


_REFUSED = (401, 403, 404)


def owners_through_pod(connect: Connect, namespace: str, pod: str) -> Owners:
    """Return the controller of *pod*, as an owner; the pod itself where it has none.

    Empty where the API server does not let us see the pod: labels matter more than that
    somebody has to clean up.

    Raises:
        ApiUnavailable: it cannot be told now.
    """
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}"
    answer = connect().get_metadata(path, {"resourceVersion": "0"})
    if answer.status in _REFUSED:
        said = str(answer.body.get("message") or f"HTTP {answer.status}")
        structlog.get_logger().warning("owner of the pod not known", pod=pod, problem=said)
        return ()
    if answer.status != 200:
        raise ApiUnavailable(
            f"GET {path}: HTTP {answer.status}",
            "it is tried again later",
            retry_after_s=answer.retry_after_s,
        )
    metadata = answer.body.get("metadata") or {}
    itself = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": metadata.get("uid")}
    controllers = (one for one in metadata.get("ownerReferences") or () if one.get("controller"))
    return (_owner(next(controllers, itself)),)


def _owner(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return *found* as one owner among others: it neither controls nor holds up its deletion."""
    return {key: found.get(key) for key in ("apiVersion", "kind", "name", "uid")}


# The labels as a NodeFeature object, which NFD's master turns into labels of the Node.
#
# The right to write such an object in the own namespace takes the place of the right to patch
# Nodes. NFD finds the Node by a label of the object, and joins the objects of a Node: first those
# of its own namespace, then by name, and what comes later counts (nfd v0.19.0,
# pkg/nfd-master/nfd-master.go, getAndMergeNodeFeatures).

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


MAX_BYTES = 65536
"""NFD skips a larger file (the same place, MaxFeatureFileSize)."""


UNSEEN_S = 1.1
"""NFD's worker looks at its directory as soon as anything happens there, and then takes no notice
of anything for up to a second (the same place, runNotifier). It would notice that a file is begun,
and not that it gets its name; until it looks by itself, a minute later, or never where its
``core.sleepInterval`` is 0. A little longer than a second, because that is a timer's."""


class NfdFile:
    """Keeps one file, all of whose content is ours; a LabelOutput.

    Nothing but :meth:`remove` ever deletes it: labels outlive this program.
    """

    name = NFD_FILE
    needs_api = False
    is_on_node = False

    def __init__(self, path: Path, *, pause: Callable[[float], None] = time.sleep) -> None:
        """Touch nothing yet; a write takes a *pause* of :data:`UNSEEN_S`."""
        self._path = path
        self._pause = pause
        self._screen = LabelScreen(str(path))

    @property
    def place(self) -> str:
        """The file."""
        return str(self._path)

    @property
    def refused(self) -> frozenset[tuple[str, str]]:
        """Labels, as (key, value), that NFD would not take; not written."""
        return self._screen.refused

    def changes(self, wish: LabelWish, *, complete: bool = False) -> LabelChanges:
        """Return what :meth:`publish` would change.

        Raises:
            InputError: the file cannot be read.
        """
        text = self._read()
        there = _parsed(text or "")
        wanted = self._screen.passing(wish.labels)
        found = compare(
            there,
            there,
            wanted,
            keep=wish.unread if complete else None,
            is_there=text is not None,
        )
        return replace(found, is_stale=text != _text({**found.kept, **wanted}))

    def publish(self, wish: LabelWish, *, complete: bool = False) -> LabelChanges:
        """Make the file hold the labels of *wish*; return what that changed.

        Raises:
            InputError: the file cannot be read or written; what was there stays.
        """
        found = self.changes(wish, complete=complete)
        if found:
            self._write(_text({**found.kept, **self._screen.passing(wish.labels)}))
        return found

    def remove(self) -> LabelChanges:
        """Delete the file; return what went with it.

        Raises:
            InputError: it is still there.
        """
        found = self.changes(NOTHING, complete=True)
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise self._error("delete", error) from None
        return found

    def is_disturbed(self, node: Mapping[str, Any]) -> bool:
        """Return ``False``: the Node says nothing of the file."""
        del node
        return False

    def _read(self) -> str | None:
        """Return the file's text; ``None`` without one; never waits for what is no plain file."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error("read", error) from None
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise self._error("read", OSError(0, "not a regular file"))
            return file.read(MAX_BYTES + 1).decode(errors="replace")

    def _write(self, text: str) -> None:
        """Replace the file as a whole, under a name that NFD does not read until it is."""
        if len(text.encode()) > MAX_BYTES:
            raise InputError(f"{self._path}: over {MAX_BYTES} bytes", "NFD reads no such file")
        temporary = self._path.with_name(f".{self._path.name}.new")
        try:
            with suppress(FileNotFoundError):
                temporary.unlink()
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with os.fdopen(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fchmod(file.fileno(), 0o644)  # NFD's worker is another user
                os.fsync(file.fileno())  # or a crash of the machine could leave it empty
            self._pause(UNSEEN_S)
            temporary.replace(self._path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise self._error("write", error) from None

    def _error(self, verb: str, error: OSError) -> InputError:
        cure = f"is NFD installed, and its directory {self._path.parent} mounted with write access?"
        return InputError(f"cannot {verb} {self._path}: {error.strerror}", cure)


def _text(labels: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in sorted(labels.items()))


def _parsed(text: str) -> dict[str, str]:
    """Return the labels in *text*; what is no label that we could have written is left out."""
    lines = (line.strip() for line in text.split("\n"))
    pairs = (line.split("=", 1) for line in lines if not line.startswith("#") and "=" in line)
    return {key: value for key, value in pairs if passes(key, value)}
