"""Overlays for distributions of Kubernetes, and the page that compares them.

From ``deploy/helm/files/distributions.yaml``, which the chart reads too.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from textwrap import indent
from typing import Any

import yaml

from scripts.generators.registry import with_rows

ROOT = Path(__file__).parents[2]
DATA = ROOT / "deploy" / "helm" / "files" / "distributions.yaml"
OVERLAYS = ROOT / "deploy" / "daemonset" / "overlays"
PAGE = ROOT / "docs" / "operate" / "distributions.md"

_OBJECTS = {"scc": "security-context-constraints.yaml", "quota": "resource-quota.yaml"}
"""Files next to an overlay with an object of its own, by the key that asks for it."""

_HEAD = """\
# Generated from deploy/helm/files/distributions.yaml: scripts/generate distributions
# kubectl apply -k deploy/daemonset/overlays/{name}
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - ../../base
"""


def distributions() -> dict[str, dict[str, Any]]:
    """Return the distributions by the value that selects them."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(DATA.read_text("utf-8"))
    return found


def overlay(name: str, distribution: Mapping[str, Any]) -> str:
    """Return the kustomization of *distribution*."""
    lines = [_HEAD.format(name=name)]
    lines += [f"  - {file}\n" for key, file in _OBJECTS.items() if distribution.get(key)]
    if distribution["toolkit"]:
        lines.append("components:\n  - ../../parts/cdi-and-toolkit\n")
    patch = yaml.safe_dump(_patch(distribution), sort_keys=False)
    return "".join(lines) + "patches:\n  - patch: |-\n" + indent(patch, " " * 6)


def _patch(distribution: Mapping[str, Any]) -> dict[str, Any]:
    """Return a strategic merge patch of the DaemonSet."""
    container: dict[str, Any] = {"name": "nodetopo"}
    mounts = [
        {"name": one["name"], "mountPath": f"/host{one['path']}", "readOnly": True}
        for one in distribution["mounts"]
    ]
    if not distribution.get("offer", True):
        container["env"] = [{"name": "NODETOPO_OFFER_GPUS", "value": "never"}]
        plugins = "/var/lib/kubelet/device-plugins"
        mounts.append({"name": "device-plugins", "mountPath": plugins, "readOnly": True})
    container["volumeMounts"] = mounts
    volumes = [
        {
            "name": one["name"],
            "hostPath": {key: one[key] for key in ("path", "type") if key in one},
        }
        for one in distribution["mounts"]
    ]
    if root := distribution.get("kubeletRootDir"):
        path = {"path": f"{root}/pod-resources"}
        volumes.append({"name": "pod-resources", "hostPath": path})
    pod: dict[str, Any] = {}
    if runtime_class := distribution.get("runtimeClassName"):
        pod["runtimeClassName"] = runtime_class
    if kind := distribution.get("seLinuxType"):
        pod["securityContext"] = {"seLinuxOptions": {"type": kind}}
    pod |= {"containers": [container], "volumes": volumes}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "nodetopo", "namespace": "nodetopo"},
        "spec": {"template": {"spec": pod}},
    }


def page() -> str:
    """Return the page with its table renewed; its text stays."""
    rows = []
    for name, one in distributions().items():
        paths = ", ".join(f"`{mount['path']}`" for mount in one["mounts"])
        runtime_class = one.get("runtimeClassName")
        cells = (
            one["title"],
            f"`{name}`",
            paths,
            f"`{runtime_class}`" if runtime_class else "",
            one["notes"],
        )
        rows.append(f"| {' | '.join(cells)} |\n")
    head = "| distribution | value and overlay | mounts, read-only | RuntimeClass | notes |"
    return with_rows(PAGE, {head: rows})


def made() -> Mapping[Path, str]:
    """Return the page, and the kustomization of each overlay."""
    overlays = {
        OVERLAYS / name / "kustomization.yaml": overlay(name, one)
        for name, one in distributions().items()
    }
    return {PAGE: page(), **overlays}


def owned() -> Iterable[Path]:
    """Return the page, and every overlay that says it is generated."""
    yield PAGE
    for path in OVERLAYS.glob("*/kustomization.yaml"):
        if path.read_text("utf-8").startswith("# Generated"):
            yield path
