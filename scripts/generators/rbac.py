"""The page of access rights and the cluster-wide rights of the chart, from `deploy/daemonset`."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from scripts.generators.registry import with_rows

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "deploy" / "daemonset"
PAGE = ROOT / "docs" / "operate" / "rbac.md"
RIGHTS = ROOT / "deploy" / "helm" / "files" / "rights.yaml"

BASE = "base"

WHY: Mapping[tuple[str, str], str] = {
    (BASE, "nodes"): "reads the labels of its own Node (`get`, `watch` of one name) and applies "
    "nodetopo's labels and annotations (`patch`)",
    (BASE, "pods"): "finds which pods have GPUs, for the audit and for alignment. RBAC can't limit "
    "a list to one node",
    (BASE, "resourceslices"): "notices DRA drivers that publish GPUs of the node",
    (BASE, "deviceclasses"): "notices a DeviceClass that maps to the extended resource",
    (BASE, "events"): "Events about the Node, which live in `default`. `patch` counts a repeated "
    "Event",
    ("configz", "nodes/configz"): "reads the kubelet's configuration in force",
    ("configz", "nodes/metrics"): "reads the kubelet's metrics for the checks of its managers",
    ("dra", "resourceslices"): "publishes the devices of nodetopo's DRA driver",
    ("dra", "resourceclaims"): "reads the claim that the kubelet asks the driver to prepare",
    ("node-feature", "nodefeatures"): "publishes labels through NFD",
    ("node-feature", "pods"): "reads its own pod to find the DaemonSet that owns the object",
    ("observed-placement", "pods"): "annotates running pods with their placement",
    ("pod-events", "events"): "Events about misaligned pods, in their namespaces",
    ("pod-placement", "pods"): "follows the pods of the node for their placement annotations",
    ("pod-placement", "events"): "Events about the devices of pods, in their namespaces",
    ("rejections", "pods"): "follows the failed pods of the node",
    ("rejections", "events"): "Events that explain a rejection, in the pod's namespace",
    ("zones", "noderesourcetopologies"): "publishes the NodeResourceTopology of the node",
}
"""By component and resource: the use of the right."""


class Right(NamedTuple):
    """One rule for one resource."""

    component: str
    scope: str
    group: str
    resource: str
    verbs: tuple[str, ...]


def rights() -> Iterator[Right]:
    """Yield every right in the manifests, of the base first."""
    for component, role in _roles():
        yield from _of(role, component)


def _roles() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every ClusterRole and Role in the manifests with its component, of the base first."""
    folders = [MANIFESTS / BASE, *sorted((MANIFESTS / "components").iterdir())]
    for path in (path for folder in folders for path in sorted(folder.glob("*.yaml"))):
        for document in yaml.safe_load_all(path.read_text("utf-8")):
            if isinstance(document, dict) and document.get("kind") in ("ClusterRole", "Role"):
                yield path.parent.name, document


def _of(role: Mapping[str, Any], component: str) -> Iterator[Right]:
    namespace = role["metadata"].get("namespace")
    scope = "cluster" if role["kind"] == "ClusterRole" else f"namespace `{namespace}`"
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield Right(component, scope, group, resource, tuple(rule["verbs"]))


def page() -> str:
    """Return the page with its table renewed; its text stays."""
    rows = (
        f"| `{right.component}` | {right.scope} | {f'`{right.group}`' if right.group else 'core'} "
        f"| `{right.resource}` | {', '.join(right.verbs)} "
        f"| {WHY[right.component, right.resource]} |\n"
        for right in rights()
    )
    return with_rows(PAGE, {"| component | scope | API group | resource | verbs | why |": rows})


def chart() -> str:
    """Return the rules of each ClusterRole for the chart: of the base, then by API group.

    ``value`` is the chart's value below ``components``, ``suffix`` what the role's name has more.
    """
    entries = []
    for component, role in _roles():
        if role["kind"] == "ClusterRole":
            first, *words = component.split("-")
            value = first + "".join(word.capitalize() for word in words)
            suffix = role["metadata"]["name"].removeprefix("nodetopo")
            entries.append({"value": value, "suffix": suffix, "rules": role["rules"]})
    base, *others = entries
    others.sort(key=lambda entry: entry["rules"][0]["apiGroups"])
    entries = [base, *others]
    head = "# Generated from deploy/daemonset: scripts/generate rbac\n"
    return head + yaml.safe_dump(entries, sort_keys=False)


def made() -> Mapping[Path, str]:
    """Return the page and the chart's rights."""
    return {PAGE: page(), RIGHTS: chart()}


def owned() -> Iterable[Path]:
    """Return the files of this generator."""
    return (PAGE, RIGHTS)
