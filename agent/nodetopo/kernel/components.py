"""The table of the components: the only place that names them all.

To drop a component, delete its folder and its line.
"""

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType, ModuleType

PACKAGE = "nodetopo.components"

COMPONENTS: Mapping[str, str] = MappingProxyType(
    {
        "gpus": "Gpus",
        "rdma": "Hcas",
        "dra": "Dra",
        "audit": "Audit",
        "labels": "Labels",
        "zones": "Zones",
        "page": "Page",
    }
)
"""Folder → class of its module ``component``, in the order in which components are asked."""


def part(name: str, module: str) -> ModuleType:
    """Import *module* of the component *name*."""
    return import_module(f"{PACKAGE}.{name}.{module}")


def has_part(name: str, module: str) -> bool:
    """Return whether the component *name* has this module, without importing it."""
    return find_spec(f"{PACKAGE}.{name}.{module}") is not None


def terms_of(name: str) -> ModuleType:
    """Import the module with the conditions of the component *name*: :class:`~.component.Terms`."""
    return part(name, "terms")
