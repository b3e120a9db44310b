"""Text that NCCL's own XML parser reads; it is not a full one (NCCL xml.cc, xml.h).

No prolog, no tabs, one space before each attribute, one element on a line, no escapes: what
would need one is refused. At most 16 attributes of 254 characters, 256 elements for a host.
"""

import re
from dataclasses import dataclass, field

from agent.errors import UnreadableError
from agent.nccl.nccl_xml_values import MAX_VALUE

MAX_ELEMENTS = 256
"""NCCL topo.h, ``NCCL_TOPO_XML_MAX_NODES``."""

_VALUE = re.compile(rf"[A-Za-z0-9 _.,:;@/+-]{{0,{MAX_VALUE}}}")


@dataclass(slots=True)
class Element:
    """One element, still growing."""

    tag: str
    attributes: dict[str, str]
    children: list["Element"] = field(default_factory=list)


def text(root: Element) -> str:
    """Return *root* and all below it, indented by two blanks as NCCL's dumps are.

    Raises:
        UnreadableError: more elements than NCCL reads, or a value that it cannot hold.
    """
    lines = _lines(root, "")
    count = sum(1 for line in lines if not line.lstrip().startswith("</"))
    if count > MAX_ELEMENTS:
        problem = f"the topology has {count} elements, NCCL reads {MAX_ELEMENTS}"
        raise UnreadableError(problem, "let NCCL detect it")
    return "".join(f"{line}\n" for line in lines)


def _lines(element: Element, indent: str) -> list[str]:
    attributes = "".join(f' {name}="{_value(value)}"' for name, value in element.attributes.items())
    opening = f"{indent}<{element.tag}{attributes}"
    if not element.children:
        return [f"{opening}/>"]
    inner = [line for child in element.children for line in _lines(child, f"{indent}  ")]
    return [f"{opening}>", *inner, f"{indent}</{element.tag}>"]


def _value(value: str) -> str:
    if _VALUE.fullmatch(value) is None:
        problem = f"{value[:40]!r} cannot stand in a file for NCCL, which knows no escapes"
        raise UnreadableError(problem, "rename the device, or correct the snapshot")
    return value
