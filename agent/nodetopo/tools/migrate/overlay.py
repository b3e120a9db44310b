"""A kustomize overlay that sets nodetopo up as the programs were that it takes the place of."""

from collections.abc import Mapping
from typing import Any

from nodetopo.formats.yaml import yaml_text
from nodetopo.kernel.settings.declare import default, key, variable
from nodetopo.kernel.settings.nvidia.file import VERSION
from nodetopo.kernel.settings.resolve import CHOOSING
from nodetopo.kernel.settings.values import shown
from nodetopo.tools.migrate.findings import Plan
from nodetopo.tools.migrate.nvidia import merged, translated

CONFIGS = "nodetopo-configs"
"""The ConfigMap that the component ``named-config`` mounts."""

NAMED_CONFIG = "named-config"

_USUAL = "default"
"""The configuration of a node whose label names none, by the fallback ``named``."""

_HEAD = """\
# Written by `nodetopo migrate`: what reproduces the configuration that was read. Read it before you
# apply it; `nodetopo run --print-config --config FILE` shows the effect of a configuration.
"""


def configurations(plan: Plan) -> Mapping[str, Mapping[str, str]]:
    """Return nodetopo's settings by key, for each configuration by its name; one at least.

    Variables and flags win over a file, as with NVIDIA's programs.
    """
    named = plan.named or {_USUAL: {}}
    settings_by_name = {}
    for name, given in named.items():
        ours = translated(merged(plan.base, given))
        settings = {key(it): shown(value.value) for it, value in ours.items()}
        for word, text in plan.settings.items():
            settings.setdefault(word, text)
        for word in map(key, CHOOSING):
            settings.pop(word, None)
        settings_by_name[name] = dict(sorted(settings.items()))
    return settings_by_name


def overlay(plan: Plan, *, deploy: str = "../..") -> dict[str, str]:
    """Return the files of an overlay by name."""
    components = sorted({*plan.components, NAMED_CONFIG})
    chosen = translated(plan.base)
    variables = [
        {"name": variable(name), "value": shown(chosen[name].value)}
        for name in CHOOSING
        if name in chosen and chosen[name].value != default(name)
    ]
    kustomization: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{deploy}/base", "configs.yaml"],
        "components": [f"{deploy}/components/{name}" for name in components],
    }
    if variables:
        container = {"name": "nodetopo", "env": variables}
        patch = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "nodetopo", "namespace": "nodetopo"},
            "spec": {"template": {"spec": {"containers": [container]}}},
        }
        kustomization["patches"] = [{"patch": _yaml(patch)}]
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIGS, "namespace": "nodetopo"},
        "data": {f"{name}.yaml": text for name, text in configuration_texts(plan).items()},
    }
    return {
        "kustomization.yaml": _HEAD + _yaml(kustomization),
        "configs.yaml": _HEAD + _yaml(config_map),
    }


def configuration_texts(plan: Plan) -> Mapping[str, str]:
    """Return nodetopo's configuration files, by the name of the configuration."""
    return {
        # An empty file is a configuration of NVIDIA's form with nothing set.
        name: _yaml(dict(settings)) if settings else f"version: {VERSION}\n"
        for name, settings in configurations(plan).items()
    }


def _yaml(plain: Any) -> str:
    return yaml_text([plain], width=1000)
