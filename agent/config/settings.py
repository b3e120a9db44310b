"""All that the daemon can be told: the groups of settings put together, and their spellings."""

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any

from agent.config.settings_audit import AuditSettings
from agent.config.settings_cluster import ClusterSettings
from agent.config.settings_devices import DeviceSettings
from agent.config.settings_handover import HandoverSettings
from agent.config.settings_health import HealthSettings
from agent.config.settings_kubelet import (
    HOST_DEVICE_PLUGINS,
    HOST_PLUGINS_REGISTRY,
    KubeletSettings,
)
from agent.config.settings_labels import LabelSettings
from agent.config.settings_node import NodeSettings
from agent.config.values import Option

__all__ = [
    "HOST_DEVICE_PLUGINS",
    "HOST_PLUGINS_REGISTRY",
    "PREFIX",
    "Settings",
    "default",
    "key",
    "option",
    "options",
    "variable",
]

PREFIX = "NODETOPO_"
"""Of every environment variable that is a setting."""


@dataclass(frozen=True, kw_only=True)
class Settings(
    AuditSettings,
    HealthSettings,
    HandoverSettings,
    DeviceSettings,
    KubeletSettings,
    LabelSettings,
    ClusterSettings,
    NodeSettings,
):
    """Every setting; each is declared once, in its group, and the text there is its ``--help``.

    The groups stand last to first, which is how a dataclass collects the fields of its bases.
    """


def options() -> Mapping[str, Option]:
    """Return every setting by field name, in the order of declaration."""
    return {item.name: _metadata(item) for item in fields(Settings)}


def option(name: str) -> Option:
    """Return the option of the field *name*."""
    return options()[name]


def default(name: str) -> object:
    """Return what the field *name* is unless somebody says; ``None`` where that depends."""
    (found,) = (item.default for item in fields(Settings) if item.name == name)
    return None if found is MISSING else found


def key(name: str) -> str:
    """Return the YAML key of a field, which is also its flag without the dashes."""
    return name.removesuffix("_s").replace("_", "-")


def variable(name: str) -> str:
    """Return the environment variable of a field."""
    return PREFIX + name.removesuffix("_s").upper()


def _metadata(item: Field[Any]) -> Option:
    found = item.metadata["option"]
    assert isinstance(found, Option)
    return found
