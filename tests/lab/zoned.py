"""A node of the lab whose zones are published by our loop, with the rights that are documented."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct
from msgspec.structs import replace

from nodetopo.components.zones.loop import ZonesLoop, configured_zones_loop
from nodetopo.components.zones.observed import ANNOTATION
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kernel.store import SnapshotStore
from nodetopo.model.codec import decode
from nodetopo.probes.kubelet.config import read_kubelet_settings
from tests.lab.api import Object
from tests.lab.cluster import Cluster
from tests.lab.deployment import apply, service_account_token
from tests.lab.machine_node import Node
from tests.lab.waiting import wait_for

COLLECTION = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
_DOCS = Path(__file__).parents[2] / "docs" / "reference" / "zones.md"
_RBAC = "rbac.authorization.k8s.io"
_NAME = "zones"


class ZonedNode(Struct, frozen=True):
    """A node, and what is published of it."""

    cluster: Cluster
    node: Node
    kubeconfig: Path

    @property
    def path(self) -> str:
        """Where the object is."""
        return f"{COLLECTION}/{self.node.name}"

    def loop(self) -> ZonesLoop:
        """Return a loop that waits for nothing, as after a start."""
        text = self.node.machine_dir.joinpath("snapshot.json").read_text("utf-8")
        policies, _issues = read_kubelet_settings(self.node.host, self.node.host / "proc")
        store = SnapshotStore()
        store.publish(replace(decode(text).snapshot, kubelet=policies))
        settings = Settings(
            node_name=self.node.name,
            kubeconfig=self.kubeconfig,
            pod_resources_socket=self.node.pod_resources_socket,
            publish_zones=True,
            annotate_pods=True,
            once=True,
        )
        return configured_zones_loop(settings, store)

    def until(self, loop: ZonesLoop, claim: Callable[[], bool]) -> None:
        """Let *loop* go around until *claim* is true."""

        def looked() -> bool:
            loop.step()
            return claim()

        wait_for("the zones say so", looked, evidence=lambda: str(self.object()))

    def object(self) -> Object:
        """Return the object as it is."""
        return self.cluster.api.get(self.path)

    def amounts(self, kind: str = "available") -> dict[str, dict[str, int]]:
        """Return amounts by zone and resource."""
        return {
            zone["name"]: {one["name"]: int(one[kind]) for one in zone["resources"]}
            for zone in self.object()["zones"]
        }

    def attributes(self) -> dict[str, str]:
        """Return the attributes by name."""
        return {one["name"]: one["value"] for one in self.object()["attributes"]}

    def placement(self, pod: str) -> str | None:
        """Return the annotation of *pod*."""
        annotations = self.cluster.pods.get(pod)["metadata"].get("annotations") or {}
        found: str | None = annotations.get(ANNOTATION)
        return found


def account(cluster: Cluster) -> Path:
    """Return the way in for an account with the rights that the documentation names, no more."""
    documents = _documents()
    apply(cluster.api, documents)
    token = service_account_token(cluster.api, documents)
    return cluster.control_plane.write_kubeconfig(_NAME, token)


def _documents() -> tuple[Object, ...]:
    (rules,) = re.findall(r"```yaml\n(rules:.*?)```", _DOCS.read_text("utf-8"), re.DOTALL)
    who = {"name": _NAME, "namespace": "default"}
    binding: dict[str, Any] = {
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": _NAME},
        "subjects": [{"kind": "ServiceAccount", **who}],
    }
    return (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": who},
        _cluster_wide("ClusterRole", yaml.safe_load(rules)),
        _cluster_wide("ClusterRoleBinding", binding),
    )


def _cluster_wide(kind: str, said: Object) -> Object:
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": {"name": _NAME}, **said}
