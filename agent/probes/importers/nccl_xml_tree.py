"""XML from strangers as a tree of elements: no entities, no document type, bounded in all ways.

The parser is expat, as Python brings it. A document type declaration is the only door to
entities, inner and outer, so it is refused before anything behind it is read; NCCL's own
parser knows neither.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from agent.errors import DecodeError

MAX_BYTES = 1024 * 1024
"""Largest text accepted; an HGX node's dump is about 14 KiB."""

MAX_ELEMENTS = 4096
"""NCCL itself reads 256 elements for one host (topo.h, ``NCCL_TOPO_XML_MAX_NODES``)."""

MAX_DEPTH = 32
"""Deepest nesting accepted; four levels of switches are nine deep."""

CURE = "give the file that NCCL_TOPO_DUMP_FILE or NCCL_TOPO_FILE names"


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """One element; *at* is its place as a reader of the file would say it: ``cpu[0].pci[2]``."""

    tag: str
    at: str
    attributes: Mapping[str, str]
    children: list["Element"] = field(default_factory=list)

    def every(self, tag: str) -> Iterator["Element"]:
        """Yield the children of that *tag*, in order."""
        return (child for child in self.children if child.tag == tag)

    def first(self, tag: str) -> "Element | None":
        """Return the first child of that *tag*."""
        return next(self.every(tag), None)


def read_tree(text: str) -> Element:
    """Return the root element of *text*; characters between elements and comments are dropped.

    Raises:
        DecodeError: too large, too deep, not XML, or with a document type declaration.
    """
    if len(text) > MAX_BYTES:
        raise DecodeError("", f"larger than {MAX_BYTES >> 10} KiB", CURE)
    builder = _Builder()
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = builder.doctype
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    try:
        # A declared encoding does not count: the text has been decoded already.
        parser.Parse(text.lstrip("\ufeff \t\r\n"), True)
    except expat.ExpatError as error:
        raise DecodeError("", f"not XML: {error}", CURE) from None
    except UnicodeEncodeError:
        raise DecodeError("", "not XML: holds half of a surrogate pair", CURE) from None
    assert builder.root is not None  # expat demands a root
    return builder.root


class _Builder:
    """What expat calls; an exception raised in here ends the parsing."""

    def __init__(self) -> None:
        self.root: Element | None = None
        self._open: list[tuple[Element, Counter[str]]] = []
        self._count = 0

    def doctype(self, name: str, *_: object) -> None:
        problem = f"has a document type ({name[:40]}), which no NCCL topology has"
        raise DecodeError("", problem, CURE)

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > MAX_ELEMENTS or len(self._open) >= MAX_DEPTH:
            problem = f"more than {MAX_ELEMENTS} elements, or deeper than {MAX_DEPTH}"
            raise DecodeError("", problem, CURE)
        element = Element(tag=tag, at=self._place(tag), attributes=attributes)
        if self._open:
            self._open[-1][0].children.append(element)
        else:
            self.root = element
        self._open.append((element, Counter()))

    def end(self, _: str) -> None:
        self._open.pop()

    def _place(self, tag: str) -> str:
        if not self._open:
            return ""
        parent, counted = self._open[-1]
        own = f"{tag[:40]}[{counted[tag]}]"
        counted[tag] += 1
        return f"{parent.at}.{own}" if parent.at else own
