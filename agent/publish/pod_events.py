"""Events about pods, as ``kubectl describe pod`` shows them: each created once, never changed.

The name follows from the pod's uid and what is said, so that an agent that starts anew is told by
the API server that it has said so already. All that this takes is the right to ``create`` Events.
"""

from dataclasses import dataclass
from urllib.parse import quote

from agent.kubeapi.client import Answer, Api
from agent.publish.event_queue import NodeEvent, Waiting
from agent.publish.event_writer import COMPONENT, EventWriter, causes, event_name

_EXISTS = 409
_FORBIDDEN = 403
_NO_NAMESPACE = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvent(NodeEvent):
    """What a person should learn about a pod; the key is to name its uid.

    Attributes:
        uid: of the pod; readers find the Events of a pod by it.
    """

    namespace: str
    pod: str
    uid: str


class PodEventPublisher(EventWriter):
    """Posts :class:`PodEvent` and nothing else."""

    def write(self, api: Api, waiting: Waiting) -> Answer:
        """Create the Event."""
        event, now = waiting.event, self.time()
        assert isinstance(event, PodEvent), "an Event about something else"
        return api.create(
            f"/api/v1/namespaces/{quote(event.namespace, safe='')}/events",
            {"fieldManager": COMPONENT},
            {
                **self.body(waiting),
                "metadata": {
                    "name": event_name(event.pod, event.uid, event.reason),
                    "namespace": event.namespace,
                },
                "involvedObject": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "namespace": event.namespace,
                    "name": event.pod,
                    "uid": event.uid,
                },
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
            },
        )

    def is_told(self, answer: Answer) -> bool:
        """Return whether the Event is there already, from before a restart."""
        return answer.status == _EXISTS

    def is_hopeless(self, answer: Answer) -> bool:
        """Return whether the pod's namespace is gone or going; others must not wait for it."""
        is_going = answer.status == _FORBIDDEN and "NamespaceTerminating" in causes(answer)
        return is_going or answer.status == _NO_NAMESPACE
