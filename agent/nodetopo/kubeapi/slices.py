"""The ResourceSlices of one node, as the API server has them now.

A watch can begin with the present objects and say when these are complete, so that "no slices" is
something else than "not known yet" (Kubernetes API concepts, "Streaming lists"; on since 1.34,
which is also the first release with this version of the API). Where that feature is off, a list
comes before the watch.
"""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nodetopo.errors import ApiUnavailable
from nodetopo.formats.responses import part, parts
from nodetopo.kubeapi.client import (
    FORBIDDEN,
    LATER,
    MAX_LIST,
    Api,
    Invalid,
    NotServed,
    Refused,
    Stream,
)
from nodetopo.kubeapi.watch import Watch
from nodetopo.model.dra import SLICES

_COMPLETE = "k8s.io/initial-events-end"
"""The annotation of the bookmark after the present objects (k8s.io/apimachinery
``meta/v1`` InitialEventsAnnotationKey)."""

Slices = Mapping[str, Mapping[str, Any]]
"""ResourceSlice objects by name."""


class SliceWatch(Watch):
    """Follows the slices that name one node, whichever driver published them."""

    LOST = "ResourceSlices not watched"
    AGAIN = "ResourceSlices watched again"

    def __init__(self, kubeconfig: Path | None, node: str) -> None:
        super().__init__(
            kubeconfig,
            what=f"ResourceSlices of node {node}",
            node=node,
            selector=f"spec.nodeName={node}",
        )
        self._listeners: list[Callable[[], None]] = []
        self._notifying = threading.Lock()
        # The slices, as last seen; ``None`` before they are known. Empty, too, where the API server
        # does not serve the API at all.
        self.slices: Slices | None = None
        self._initial: dict[str, Mapping[str, Any]] | None = None  # until they are complete
        self.connections = 0  # number of started watches: each can reach another API server

    @property
    def is_sound(self) -> bool:
        """Whether the slices are known, without an error since."""
        return self.slices is not None and self.problem is None

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call *listener* after every change from now on; by the thread that runs, so quickly."""
        with self._notifying:
            self._listeners.append(listener)

    def open(self, api: Api, query: Mapping[str, str], silence_s: float) -> Stream:
        """Open the stream, which begins with the present slices or follows a list of them."""
        self._initial = {}
        asked = {
            **query,
            "resourceVersion": "",
            "resourceVersionMatch": "NotOlderThan",
            "sendInitialEvents": "true",
        }
        try:
            stream = api.watch(SLICES, asked, silence_s)
        except NotServed:
            self._publish({})
            raise
        except Invalid:  # WatchList is off (k8s.io/apiserver pkg/features/kube_features.go)
            version = self._list(api)
            stream = api.watch(SLICES, {**query, "resourceVersion": version}, silence_s)
        self.connections += 1
        return stream

    def _list(self, api: Api) -> str:
        """Publish the present slices, and return the version to follow them from."""
        answer = api.get(SLICES, {"fieldSelector": self._selector}, MAX_LIST)
        if answer.status != 200:
            is_refused = answer.status == FORBIDDEN
            error = Refused if is_refused else ApiUnavailable
            cure = "grant `list` on resourceslices to the account" if is_refused else LATER
            problem = f"GET {api.host}{SLICES}: {answer.problem}"
            raise error(problem, cure, retry_after_s=answer.retry_after_s)
        version = str(part(answer.body, "metadata").get("resourceVersion"))
        self._initial = None
        slices = {
            str(part(item, "metadata").get("name")): item for item in parts(answer.body, "items")
        }
        self._publish(slices)
        return version

    def take(self, kind: str, found: Mapping[str, Any]) -> None:
        """Keep the slice's state; listeners are notified once the initial ones are complete."""
        name = str(part(found, "metadata").get("name") or "")
        slices = dict(self.slices or {}) if self._initial is None else self._initial
        if kind == "DELETED":
            slices.pop(name, None)
        else:
            slices[name] = found
        if self._initial is None:
            self._publish(slices)

    def take_bookmark(self, metadata: Mapping[str, Any]) -> None:
        """Publish the present slices once they are complete."""
        if self._initial is not None and part(metadata, "annotations").get(_COMPLETE) == "true":
            slices, self._initial = self._initial, None
            self._publish(slices)

    def _publish(self, slices: Slices) -> None:
        with self._notifying:
            if slices != self.slices:
                self.slices = MappingProxyType(dict(slices))
                for listener in self._listeners:
                    listener()
