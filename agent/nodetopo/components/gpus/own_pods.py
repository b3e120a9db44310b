"""The pods of this node as the API server has them: what they ask for, and how to place them.

A request of the kubelet never waits for the API server: it uses what the watch has shown. The
kubelet learns of a pod from a watch of its own, at about the same time, and admits it later.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from nodetopo.allocation.rules import Policy
from nodetopo.components.gpus.placement import Placement, Variant
from nodetopo.formats.responses import part, parts, texts
from nodetopo.kernel.events import PodEvent, Post
from nodetopo.kernel.requester import PodName, Requester, Requesters
from nodetopo.kubeapi.watch import PodWatch
from nodetopo.model.digits import is_digits

ANNOTATION = "nodetopo.io/placement-policy"
"""Of a pod: a word of the setting ``placement-policy``, for its GPUs."""

UNKNOWN_POLICY = "PlacementPolicyUnknown"
"""Reason of the Event on a pod with another word."""

UNUSED_POLICY = "PlacementPolicyUnused"
"""Reason of the Event on a pod that was not known in time."""

REMEMBERED = 1024
"""Most pods remembered; a kubelet runs 110 pods unless configured."""

MOST_WORD_CHARS = 80
"""Characters of a word that an Event repeats."""


class OwnPod(Struct, frozen=True, kw_only=True):
    """A pod that has not ended."""

    uid: str
    policy: Policy | None  # of its annotation; ``None`` for the node's
    # By container, the numbers of devices by resource, init containers left out.
    requests: Mapping[str, Mapping[str, int]]
    # The resources of init containers, which the kubelet does not list.
    init_requests: frozenset[str]


class OwnPods(PodWatch):
    """Follows the pods of one node; one thread runs it, any thread can ask."""

    LOST = "pods not followed"
    AGAIN = "pods followed again"

    def __init__(self, kubeconfig: Path | None, node: str, post: Post | None) -> None:
        """Send no request yet.

        *post* takes Events on pods with an unknown policy; ``None`` where policies do not count.
        """
        super().__init__(kubeconfig, node)
        self._post = post
        self._pods: OrderedDict[PodName, OwnPod] = OrderedDict()

    def take(self, kind: str, found: Mapping[str, Any]) -> None:
        """Record a pod, or forget one that has ended."""
        metadata, spec, status = (part(found, name) for name in ("metadata", "spec", "status"))
        if spec.get("nodeName") != self._node:
            return
        name = str(metadata.get("namespace")), str(metadata.get("name"))
        if kind == "DELETED" or status.get("phase") in ("Succeeded", "Failed"):
            self._pods.pop(name, None)
            return
        uid, before = str(metadata.get("uid")), self._pods.get(name)
        containers, inits = parts(spec, "containers"), parts(spec, "initContainers")
        sidecars = [one for one in inits if one.get("restartPolicy") == "Always"]
        word = texts(metadata, "annotations").get(ANNOTATION)
        self._pods[name] = OwnPod(
            uid=uid,
            policy=_policy(word),
            requests={str(one.get("name")): _devices(one) for one in (*sidecars, *containers)},
            init_requests=frozenset(
                resource for one in inits if one not in sidecars for resource in _devices(one)
            ),
        )
        if word is not None and _policy(word) is None and (before is None or before.uid != uid):
            self._warn(name, uid, word)
        while len(self._pods) > REMEMBERED:
            self._pods.popitem(last=False)

    def forget(self) -> None:
        """Forget all pods: of those that ended meanwhile no event will come."""
        self._pods.clear()

    def pod(self, name: PodName) -> OwnPod | None:
        """Return a pod that has not ended; ``None`` where it is not known, or no longer followed.

        A static pod is known once the kubelet has mirrored it.
        """
        return None if self.problem is not None else self._pods.get(name)

    def has_other_policy(self, policy: str) -> bool:
        """Return whether a pod that has not ended wants another policy than *policy*."""
        wanted = {pod.policy for pod in tuple(self._pods.values())}
        return not wanted <= {None, policy}

    def uid(self, name: PodName) -> str | None:
        """Return the UID of a pod; ``None`` as for :meth:`pod`."""
        known = self.pod(name)
        return None if known is None else known.uid

    def requests(self, pod: PodName, container: str) -> Mapping[str, int] | None:
        """Return the devices that a container asks for, by resource; ``None``: not known.

        They are not known either of a pod whose init containers, which the kubelet does not list,
        ask for devices too.
        """
        known = self.pod(pod)
        return None if known is None or known.init_requests else known.requests.get(container, {})

    def _warn(self, name: PodName, uid: str, word: str) -> None:
        if self._post is None:
            return
        words = ", ".join(policy.value for policy in Policy)
        self._post(
            PodEvent(
                reason=UNKNOWN_POLICY,
                message=f"annotation {ANNOTATION}: {word[:MOST_WORD_CHARS]!r} is not one of "
                f"{words}; the pod is placed by the policy of the node",
                is_warning=True,
                key=uid,
                namespace=name[0],
                pod=name[1],
                uid=uid,
            )
        )


class PodChoice:
    """Chooses devices of one resource as the pod that asks wants it; a ``Choice``.

    Containers of a pod are placed as one set: whole GPUs are chosen that are the best together with
    those that its other containers have.
    """

    def __init__(
        self,
        resource: str,
        placement: Placement,
        requesters: Requesters | None = None,
        pods: OwnPods | None = None,
    ) -> None:
        """Choose by *placement* alone without *pods*."""
        self._resource = resource
        self._placement = placement
        self._requesters = requesters
        self._pods = pods

    def __call__(
        self,
        available: Sequence[str],
        required: Sequence[str],
        size: int,
        /,
        *,
        taken_hcas: frozenset[str] | None = None,
    ) -> Sequence[str]:
        """Return the ids to take; *taken_hcas* as in ``Choice``."""
        requester = None
        if self._pods is not None and self._requesters is not None:
            # Also while it asks for HCAs first, and the GPUs that it gets next are foreseen.
            requester = self._requesters.asking
        variant = Variant(policy=self._policy(requester), taken_hcas=taken_hcas)
        beside = () if requester is None else sorted(requester.beside.get(self._resource, ()))
        return self._placement.prefer(available, required, size, variant, beside=beside)

    def _policy(self, requester: Requester | None) -> Policy | None:
        if requester is None or requester.pod is None or self._pods is None:
            return None
        pod = self._pods.pod(requester.pod)
        return None if pod is None else pod.policy


def _policy(word: str | None) -> Policy | None:
    try:
        return None if word is None else Policy(word.strip())
    except ValueError:
        return None


def _devices(container: Mapping[str, Any]) -> dict[str, int]:
    """Return the extended resources in the limits of *container*, which equal its requests."""
    limits = part(part(container, "resources"), "limits")
    return {
        str(name): int(amount)
        for name, amount in limits.items()
        if "/" in str(name) and isinstance(amount, str) and is_digits(amount)
    }
