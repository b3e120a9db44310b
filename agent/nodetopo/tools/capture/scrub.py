"""A snapshot without the names that identify its node, owner or workload.

Each text field has a rule in :data:`nodetopo.tools.capture.fields.RULES`; the text of a field
without one is replaced. Each original has one substitute, the same wherever it stands, so that
what was equal stays equal.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.model.numa import CpuSet
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.capture.fields import NODE, RULES, Scrub, command_line, replaced
from nodetopo.tools.capture.substitutes import Substitutes
from nodetopo.tools.capture.words import is_public

__all__ = ["NODE", "Substitutes", "learn_hosts", "scrubbed"]

_OPAQUE = (bool, int, float, Enum, datetime, CpuSet, PciAddress, type(None))
"""Values without free text."""


def scrubbed(
    snapshot: Snapshot, substitutes: Substitutes, hosts: Iterable[str] = ()
) -> tuple[Snapshot, tuple[str, ...]]:
    """Return *snapshot* without its node's identity, and a report of the changes.

    Args:
        hosts: other names of the node.
    """
    learn_hosts(substitutes, (snapshot.node or "", *hosts))
    scrub = Scrub(substitutes)
    _rewritten(scrub, snapshot, replaced, None)  # learns the names for all texts
    after: Snapshot = _rewritten(scrub, snapshot, replaced, None)
    line = snapshot.kernel.command_line if snapshot.kernel else None
    is_cut = line is not None and command_line(line) != line
    done = ("parameters of the kernel's command line left out",) if is_cut else ()
    return after, (*substitutes.summary(), *done)


def learn_hosts(substitutes: Substitutes, names: Iterable[str]) -> None:
    """Make :data:`NODE` the substitute of the node's names.

    A name such as ``node1`` or ``vendor`` identifies nobody, and stands for other things in the
    kernel's files.
    """
    for name in names:
        if "-" in name or not is_public(name):
            substitutes.learn("host name", name, NODE)


def _rewritten(scrub: Scrub, value: Any, rule: Any, around: Any) -> Any:
    """Return *value* with all texts in it rewritten by *rule*.

    Args:
        rule: a function of *around* and the text; for a map a pair, the rule of its keys and of its
            values.
        around: the record of the field, or the key of a map's value.
    """
    if isinstance(value, _OPAQUE):
        return value
    if type(value) is str:
        return rule(scrub, around, value)
    if isinstance(value, tuple):
        items = (_rewritten(scrub, item, rule, around) for item in value)
        return tuple(item for item in items if item is not None)
    if isinstance(value, Mapping):
        of_key, of_value = rule if isinstance(rule, tuple) else (rule, rule)
        found = {}
        for key, item in value.items():
            name = _rewritten(scrub, key, of_key, around)
            if name is not None:
                found[name] = _rewritten(scrub, item, of_value, key)
        return found
    if isinstance(value, Struct):
        kind = type(value).__name__
        return replace(
            value,
            **{
                name: _rewritten(
                    scrub, getattr(value, name), RULES.get(f"{kind}.{name}", replaced), value
                )
                for name in value.__struct_fields__
            },
        )
    raise TypeError(f"no rule for a {type(value).__name__}")
