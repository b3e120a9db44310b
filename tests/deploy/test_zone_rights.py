"""The rights that the documentation of zones names, and those that the manifests bring."""

import re
from pathlib import Path

import yaml

from tests.deploy.kustomize import Object, render

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy" / "daemonset"


def triples(rules: list[Object]) -> set[tuple[str, str, str]]:
    """Return group, resource and verb of all that *rules* allow."""
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def brought(*components: str) -> set[tuple[str, str, str]]:
    """Return what the manifests allow for the whole cluster."""
    objects = render(DEPLOY / "base", *(DEPLOY / "components" / name for name in components))
    return triples(
        [rule for one in objects if one["kind"] == "ClusterRole" for rule in one["rules"]]
    )


def test_the_components_bring_what_the_documentation_names_and_no_more() -> None:
    text = (ROOT / "docs" / "reference" / "zones.md").read_text("utf-8")
    (block,) = re.findall(r"```yaml\n(rules:.*?)```", text, re.DOTALL)
    named, base = triples(yaml.safe_load(block)["rules"]), brought()
    assert brought("zones", "observed-placement") == base | named
    assert named - base == {
        *(
            ("topology.node.k8s.io", "noderesourcetopologies", verb)
            for verb in ("get", "create", "patch")
        ),
        ("", "pods", "get"),
        ("", "pods", "patch"),
    }
