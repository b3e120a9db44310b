"""The devices allocated to a ResourceClaim from our pool.

Source of the fields: k8s.io/api v0.36 ``resource/v1`` types.go (ResourceClaimStatus).
"""

from collections.abc import Callable
from typing import TypeAlias
from urllib.parse import quote

from msgspec import Struct

from nodetopo.errors import ApiUnavailable, InputError
from nodetopo.formats.fields import Object, dig, mappings, text
from nodetopo.kubeapi.apply import Connect
from nodetopo.kubeapi.client import NOT_FOUND
from nodetopo.model.dra import API, DRIVER


class ClaimReference(Struct, frozen=True, kw_only=True):
    """A ResourceClaim as the kubelet names it."""

    uid: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class AllocatedDevice(Struct, frozen=True, kw_only=True):
    """One result of an allocation."""

    request: str  # of the claim; request/subrequest if it had alternatives
    device: str
    is_admin: bool = False  # for administration, alongside other users of the device


ReadClaim: TypeAlias = Callable[[ClaimReference], tuple[AllocatedDevice, ...]]
"""Returns a claim's allocation from our pool; raises AgentError."""


def claim_reader(connect: Connect, pool: str) -> ReadClaim:
    """Return a function that reads claims from the API server; *pool* is the node's."""

    def read(claim: ClaimReference) -> tuple[AllocatedDevice, ...]:
        namespace, name = quote(claim.namespace, safe=""), quote(claim.name, safe="")
        path = f"{API}/namespaces/{namespace}/resourceclaims/{name}"
        answer = connect().get(path, {})
        if answer.status == NOT_FOUND:
            raise InputError(
                f"the claim {claim} does not exist", "delete the pod that waits for it"
            )
        if answer.status != 200:
            raise ApiUnavailable(
                f"GET {connect().host}{path}: {answer.problem}",
                "let the agent's account `get` resourceclaims",
            )
        return allocated(answer.body, claim, pool)

    return read


def allocated(body: Object, claim: ClaimReference, pool: str) -> tuple[AllocatedDevice, ...]:
    """Return the devices of *pool* allocated to *claim*, whose object is *body*, in order."""
    if text(body, "metadata", "uid") != claim.uid:
        raise InputError(
            f"the claim {claim} was made anew: its uid is not {claim.uid}",
            "delete the pod that waits for the old one",
        )
    if dig(body, "status", "allocation") is None:
        raise InputError(f"nothing is allocated to the claim {claim}", "it is tried again later")
    devices = []
    for result in mappings(body, "status", "allocation", "devices", "results"):
        request, device = text(result, "request"), text(result, "device")
        is_ours = text(result, "driver") == DRIVER and text(result, "pool") == pool
        if is_ours and request is not None and device is not None:
            is_admin = dig(result, "adminAccess") is True
            devices.append(AllocatedDevice(request=request, device=device, is_admin=is_admin))
    return tuple(devices)
