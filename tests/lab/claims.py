"""Claims for the tests: classes of our DRA driver, claims, and pods that have them."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.lab.api import Api, Object
from tests.lab.pods import guaranteed

API = "/apis/resource.k8s.io/v1"
SLICES = f"{API}/resourceslices"
CLASSES = f"{API}/deviceclasses"
CLAIMS = f"{API}/namespaces/default/resourceclaims"
TEMPLATES = f"{API}/namespaces/default/resourceclaimtemplates"


def request(size: int, *, name: str = "gpus", **more: Any) -> Object:
    """Return a request for one set of *size* GPUs of our driver, or for a single GPU."""
    if size == 1:
        return {"name": name, "exactly": {"deviceClassName": "gpu.nodetopo.io", **more}}
    expression = f'device.attributes["nodetopo.io"].gpus == {size}'
    exactly = {
        "deviceClassName": "gpus.nodetopo.io",
        "selectors": [{"cel": {"expression": expression}}],
        **more,
    }
    return {"name": name, "exactly": exactly}


def spec(*requests: Mapping[str, Any]) -> Object:
    """Return the specification of a claim."""
    return {"devices": {"requests": list(requests)}}


def pod_with(name: str, node: str, claim: str, *, is_template: bool = False) -> Object:
    """Return a pod whose one container has all of *claim*, or of a claim from that template."""
    pod = guaranteed(name, node, {"cpu": 1, "memory": "64Mi"})
    key = "resourceClaimTemplateName" if is_template else "resourceClaimName"
    pod["spec"]["resourceClaims"] = [{"name": "gpus", key: claim}]
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpus"}]
    return pod


class Claims:
    """The claims of namespace ``default``."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, name: str, claim_spec: Mapping[str, Any]) -> None:
        """Create a claim."""
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
        self._api.create(CLAIMS, {**body, "metadata": {"name": name}, "spec": claim_spec})

    def create_template(self, name: str, claim_spec: Mapping[str, Any]) -> None:
        """Create a template."""
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
        inner = {"spec": claim_spec}
        self._api.create(TEMPLATES, {**body, "metadata": {"name": name}, "spec": inner})

    def all(self) -> Sequence[Object]:
        """Return every claim."""
        items: Sequence[Object] = self._api.get(CLAIMS)["items"]
        return items

    def devices(self, name: str) -> tuple[str, ...] | None:
        """Return the devices that a claim was allocated; ``None`` before."""
        return allocated(self._api.get(f"{CLAIMS}/{name}"))

    def of_pod(self, pod: str) -> tuple[str, ...] | None:
        """Return the devices that the claims made for *pod* were allocated."""
        found = [
            devices
            for claim in self.all()
            for user in claim.get("status", {}).get("reservedFor", ())
            if user["name"] == pod and (devices := allocated(claim)) is not None
        ]
        return tuple(name for devices in found for name in devices) if found else None


def allocated(claim: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the names of the devices of *claim*; ``None`` where it has none yet."""
    allocation = claim.get("status", {}).get("allocation")
    if allocation is None:
        return None
    return tuple(result["device"] for result in allocation["devices"]["results"])
