"""NCCL's own parser of topology files, written again from its rules, to hold files against.

Nothing of the agent is used here. The rules are those of NVIDIA/nccl 2.30.7: ``src/graph/xml.cc``
(``xmlGetNode``, ``xmlGetToken``, ``xmlGetValue``, ``xmlLoadSub`` and the handlers),
``src/graph/xml.h`` (the limits) and ``src/graph/topo.cc`` (which attributes it cannot do without,
and the words it knows). NCCL reads one character after the other and is no XML parser: no prolog,
no tabs, no text, no escapes, exactly one space before an attribute.

Where NCCL goes on and ignores something, :func:`read` notes it, since a file that says what
nobody reads is wrong as well.
"""

import dataclasses
import re
from collections.abc import Iterator

from msgspec import Struct

MAX_STR_LEN = 255
"""The size of the buffers; a name or a value is full when index 254 is written."""

MAX_ATTRIBUTES = 16
MAX_SUBS = 640
"""Elements in one; 128 up to 2.28 and 32 up to 2.20."""

OLD_SUBS = 32

MAX_NODES = 256
"""The last of them is needed to read the closing tags into."""

CHILDREN = {
    "system": ("cpu",),
    "cpu": ("pci", "nic"),
    "pci": ("pci", "gpu", "nic", "pcilink"),
    "gpu": ("nvlink", "c2c"),
    "nic": ("net",),
    "nvlink": (),
    "c2c": (),
    "net": (),
    "pcilink": (),
}
"""The handlers; any other element is skipped with all that is in it."""

_SPEEDS = (
    *("2.5 GT/s", "5 GT/s", "8 GT/s", "16 GT/s", "32 GT/s"),
    *("5.0 GT/s PCIe", "8.0 GT/s PCIe", "16.0 GT/s PCIe", "32.0 GT/s PCIe", "64.0 GT/s PCIe"),
)
"""Compared as prefixes; what is none of them counts as 8 GT/s (``kvDictPciGen``)."""

_CLASSES = ("0x060400", "0x080100", "0x068000", "0x068001", "0x03", "0x02")
"""Compared as prefixes; what is none of them is a bridge (``kvDictPciClass``)."""

_HIDDEN = "fffffff:ffff:ff"

_INTEGER = r"-?(0x[0-9a-fA-F]+|[0-9]+)"
_BUSID = r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]"
_FORMS = {
    ("cpu", "numaid"): _INTEGER,
    ("cpu", "affinity"): r"([0-9a-f]{1,8}(,[0-9a-f]{8})*)?",
    ("cpu", "arch"): "x86_64|arm64|ppc64",
    ("cpu", "vendor"): "GenuineIntel|AuthenticAMD|CentaurHauls|  Shanghai  ",
    ("cpu", "familyid"): _INTEGER,
    ("cpu", "modelid"): _INTEGER,
    ("pci", "busid"): _BUSID,
    ("pci", "class"): r"0x[0-9a-f]{6}",
    ("pci", "vendor"): r"0x[0-9a-f]{1,4}",
    ("pci", "device"): r"0x[0-9a-f]{1,4}",
    ("pci", "subsystem_vendor"): r"0x[0-9a-f]{1,4}",
    ("pci", "subsystem_device"): r"0x[0-9a-f]{1,4}",
    ("pci", "link_width"): r"[0-9]{1,2}",
    ("gpu", "dev"): "[0-9]+",
    ("gpu", "sm"): "[0-9]{2,3}",
    ("gpu", "rank"): "[0-9]+",
    ("gpu", "gdr"): "[01]",
    ("nvlink", "target"): f"{_BUSID}|{_HIDDEN}",
    ("nvlink", "count"): "[0-9]+",
    ("nvlink", "tclass"): r"0x[0-9a-f]{6}",
    ("pcilink", "target"): _BUSID,
    ("c2c", "bw"): "[0-9]+",
    ("c2c", "count"): "[0-9]+",
    ("net", "dev"): "[0-9]+",
    ("net", "speed"): "[0-9]+",
    ("net", "port"): "[0-9]+",
    ("net", "guid"): r"0x[0-9a-f]{1,16}",
    ("net", "gdr"): "[01]",
}
_REQUIRED = {
    "cpu": ("numaid",),
    "pci": ("busid", "class"),
    "nvlink": ("target", "count", "tclass"),
    "c2c": ("bw", "count"),
    "pcilink": ("target",),
    "net": ("name",),
}
"""What NCCL ends with an error without, and cannot add itself: a bridge's class is read from
sysfs, if at all, only for devices in use."""


class RefusedError(Exception):
    """NCCL would end with an error."""


@dataclasses.dataclass
class Node:
    """An element that NCCL kept."""

    tag: str
    attributes: dict[str, str]
    kind: str
    children: list["Node"] = dataclasses.field(default_factory=list)

    def every(self) -> Iterator["Node"]:
        """Yield it and all below, in the order of the file."""
        yield self
        for child in self.children:
            yield from child.every()


class Topology(Struct, frozen=True, kw_only=True):
    """What NCCL has of a file.

    Attributes:
        system: ``None``: it ignored everything.
        ignored: what it left out, a phrase each.
    """

    system: Node | None
    ignored: tuple[str, ...]


def read(text: str) -> Topology:
    """Return what NCCL reads of *text*.

    Raises:
        RefusedError: it ends with an error.
    """
    parser = _Parser(text)
    top = Node("", {}, "open")
    parser.load(None, ("system",), top)
    return Topology(system=top.children[0] if top.children else None, ignored=tuple(parser.ignored))


def complaints(topology: Topology) -> list[str]:
    """Return what is wrong with a file that NCCL reads: ignored, lacking or misunderstood."""
    found = list(topology.ignored)
    if topology.system is None:
        return [*found, "no system"]
    busids: list[str] = []
    for node in topology.system.every():
        found += [
            f"{node.tag} without {name}"
            for name in _REQUIRED.get(node.tag, ())
            if name not in node.attributes
        ]
        for name, value in node.attributes.items():
            form = _FORMS.get((node.tag, name))
            if form is not None and re.fullmatch(form, value) is None:
                found.append(f"{node.tag} {name}={value!r}")
        if node.tag == "pci":
            busids.append(node.attributes.get("busid", ""))
            found += _of_function(node)
        if len(node.children) > OLD_SUBS:
            found.append(f"{node.tag} with {len(node.children)} children")
        if node.tag in ("gpu", "nic", "net", "nvlink", "c2c") and len(node.attributes) == 0:
            found += [f"{node.tag} says nothing"] if not node.children else []
    found += [
        f"{busid} stands twice" for busid in sorted({b for b in busids if busids.count(b) > 1})
    ]
    return found


def _of_function(node: Node) -> Iterator[str]:
    kind = node.attributes.get("class", "")
    if kind and not kind.startswith(_CLASSES):
        yield f"pci class={kind!r} counts as a bridge"
    speed = node.attributes.get("link_speed")
    if speed is not None and not speed.startswith(_SPEEDS):
        yield f"pci link_speed={speed!r} counts as 8 GT/s"
    tags = {child.tag for child in node.children}
    if "gpu" in tags and not kind.startswith("0x03"):
        yield f"a gpu in a function of class {kind}"
    if "nic" in tags and not kind.startswith(("0x02", "0x080100")):
        yield f"a nic in a function of class {kind}"
    if "pci" in tags and not kind.startswith("0x060400"):
        yield f"functions below one of class {kind}"


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._nodes = 0
        self.ignored: list[str] = []

    def load(self, head: Node | None, handlers: tuple[str, ...] | None, into: Node) -> None:
        """Read the children of *head* up to its closing tag; at the top, up to the end.

        Without *handlers* what is read has been ignored as a whole.
        """
        if head is not None and head.kind == "single":
            return
        while True:
            if self._nodes == MAX_NODES:
                raise RefusedError(f"limited to {MAX_NODES} nodes")
            node = self._node()
            if node is None:
                if head is not None:
                    raise RefusedError(f"unterminated {head.tag}")
                return
            if node.kind == "close":
                if head is None:
                    raise RefusedError(f"closing {node.tag} that is not open")
                if node.tag != head.tag:
                    raise RefusedError(f"mismatch {head.tag} / {node.tag}")
                return
            if handlers is None or node.tag not in handlers:
                if handlers is not None:
                    where = "the file" if head is None else head.tag
                    self.ignored.append(f"element {node.tag} in {where}")
                self.load(node, None, Node("", {}, "open"))
                continue
            if len(into.children) == MAX_SUBS:
                raise RefusedError(f"limited to {MAX_SUBS} subnodes")
            into.children.append(node)
            self._nodes += 1
            if node.tag == "system":
                self._check_version(node)
            self.load(node, CHILDREN[node.tag], node)

    def _check_version(self, system: Node) -> None:
        version = system.attributes.get("version")
        if version is None:
            raise RefusedError("attribute version of node system not found")
        number = re.match(r"\s*([+-]?[0-9]+)", version)  # strtol: 0 where there is none
        if number is None or int(number[1]) != 1:
            raise RefusedError(f"wrong version {version}")

    def _char(self) -> str:
        if self._at == len(self._text):
            raise RefusedError("unexpected EOF")
        self._at += 1
        return self._text[self._at - 1]

    def _node(self) -> Node | None:
        char = " "
        while char in " \n\r":
            if self._at == len(self._text):
                return None
            char = self._char()
        if char != "<":
            raise RefusedError(f"expecting '<', got {char!r}")
        tag, _, last = self._token(with_value=False)
        if tag.startswith("!--"):
            self._skip_comment(tag[3:] + last)
            return self._node()
        if not tag and last == "/":
            tag, _, last = self._token(with_value=False)
            if last != ">":
                raise RefusedError(f"unexpected trailing {last!r} in closing tag {tag}")
            return Node(tag, {}, "close")
        node = Node(tag, {}, "open")
        count = 0
        while last == " ":
            name, value, last = self._token(with_value=True)
            if value is None:
                raise RefusedError(f"attribute {name!r} of {tag} without a value")
            count += 1
            if count > MAX_ATTRIBUTES:
                self.ignored.append(f"attribute {name} of {tag}")
            elif name in node.attributes:
                self.ignored.append(f"second attribute {name} of {tag}")
            else:
                node.attributes[name] = value
        if last == "/":
            node.kind = "single"
            _, _, last = self._token(with_value=False)
        if last != ">":
            raise RefusedError(f"expected >, got {last!r}")
        return node

    def _token(self, *, with_value: bool) -> tuple[str, str | None, str]:
        """Return a name, its value if there is one, and the character behind."""
        name = ""
        while True:
            char = self._char()
            if char == "=":
                if not with_value:
                    raise RefusedError(f"unexpected value with name {name}")
                return name, *self._value()
            if len(name.encode()) == MAX_STR_LEN - 1:
                raise RefusedError(f"name {name[:20]}… too long")
            if char in " >/\n\r":
                return name, None, char
            name += char

    def _value(self) -> tuple[str, str]:
        quote = self._char()
        if quote not in "\"'":
            raise RefusedError("expected (double) quote")
        value = ""
        while True:
            char = self._char()
            # The quote takes its place in the buffer too.
            if len(value.encode()) == MAX_STR_LEN - 1:
                raise RefusedError(f"value {value[:20]}… too long")
            if char == quote:
                return value, self._char()
            value += char

    def _skip_comment(self, start: str) -> None:
        end = ("..." + start)[-3:]
        while end != "-->":
            if self._at == len(self._text):
                raise RefusedError("unterminated comment")
            end = end[1:] + self._char()
