"""Events about the Node, as ``kubectl describe node`` shows them, written by server-side apply.

The object is a ``v1`` Event, which every reader of Events knows. Its name follows from what it is
about, so that one write both creates it and counts it up, and an answer that was lost does no harm.
The Node is named as the kubelet names it in its own Events: the uid is the name, the namespace of
the Event is ``default`` (kubernetes 1.36, pkg/kubelet/kubelet.go, nodeRef; API validation of Events
demands that namespace for an object that has none).
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from agent.kubeapi.client import Answer, Api
from agent.publish.event_queue import REMEMBERED, NodeEvent, Waiting
from agent.publish.event_writer import COMPONENT, EventWriter, event_name, utc_now

__all__ = ["EventPublisher", "NodeEvent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What the API server was told of one thing so far: when it began, and how often it was."""

    first: str
    count: int


class EventPublisher(EventWriter):
    """Posts what happens to one node."""

    def __init__(
        self,
        kubeconfig: Path | None,
        node: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """Connect to nothing yet; arguments as of :class:`EventWriter`."""
        super().__init__(kubeconfig, node, clock=clock, now=now)
        self._told: OrderedDict[str, _Told] = OrderedDict()  # by name of the Event

    def write(self, api: Api, waiting: Waiting) -> Answer:
        """Create the Event, or count it up."""
        event, now = waiting.event, self.time()
        name = event_name(self._node, self._node, event.reason, event.key)
        before = self._told.get(name, _Told(first=now, count=0))
        told = _Told(first=before.first, count=before.count + waiting.count)
        answer = api.apply(
            f"/api/v1/namespaces/default/events/{name}",
            {"fieldManager": COMPONENT, "force": "true"},
            {
                **self.body(waiting),
                "metadata": {"name": name, "namespace": "default"},
                "involvedObject": {"kind": "Node", "name": self._node, "uid": self._node},
                "firstTimestamp": told.first,
                "lastTimestamp": now,
                "count": told.count,
            },
        )
        if answer.status in {200, 201}:
            self._remember(name, told)
        return answer

    def _remember(self, name: str, told: _Told) -> None:
        self._told[name] = told
        self._told.move_to_end(name)
        if len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
