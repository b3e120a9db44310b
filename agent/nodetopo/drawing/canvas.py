"""SVG elements as text: every number rounded, every foreign word cleaned and escaped."""

from collections.abc import Iterable
from html import escape

from msgspec import Struct, field

from nodetopo.formats.columns import width
from nodetopo.formats.harmless import clean

# Colours and sizes of the picture. Sizes are SVG user units, which browsers show as pixels.
#
# The colours are those of Okabe and Ito ("Color Universal Design", 2008), which people with
# any colour vision tell apart, and light tints of them; nothing is told by colour alone.

PAPER = "#ffffff"


INK = "#1a1a1a"


FAINT = "#5c5c5c"


FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"


NUMA_FILL, NUMA_LINE = "#f6f6f4", "#9a9a94"


SOCKET_LINE = "#6e6e68"


CPU_FILL, CPU_EDGE = "#e4e4df", "#6e6e68"


SWITCH_FILL, SWITCH_LINE = "#dbe9f5", "#0072b2"


GPU_FILL, GPU_LINE = "#d5efe5", "#007a58"


NIC_FILL, NIC_LINE = "#fdf0cf", "#b57900"


OTHER_FILL, OTHER_LINE = "#f3e6ee", "#8f5f7c"


NVLINK = "#a8508a"
"""Okabe and Ito's reddish purple, darker, so that thin lines hold on white."""


NVLINK_FILL = "#f5e3ee"


PCIE = "#0072b2"


BETWEEN = "#6e6e68"


C2C = "#007a58"


WAY = "#d55e00"


BAD = "#b04a00"


MARGIN = 24


CARD = 92
"""Width of a device."""


GAP = 12
"""Between two devices."""


BLOCK_GAP = 44
"""Between two NUMA nodes, room for the name of the link between them."""


ROW = 62
"""From one row of switches to the next."""


CHIP_H = 28


CHIP_W = 78
"""Of a switch: narrower than a card, so that a line can pass beside it."""


PAD = 14
"""Between a frame and what it holds."""


Value = str | float


_WIDE = 0.54
"""Mean advance of a sans-serif letter in ems: digits of Helvetica have 0.556, most others less."""


_XML_FORBIDDEN = frozenset({"\ufffe", "\uffff"})


LONGEST = 4000
"""Characters of a text in the picture, tooltips included; a list of 1024 CPUs has no more."""


def safe(text: str) -> str:
    """Return *text* without what a terminal or XML 1.0 must not hold, cut where it is very long."""
    kept = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return "".join(char for char in clean(kept) if char not in _XML_FORBIDDEN)


def text_width(text: str, size: float) -> float:
    """Return about how wide *text* is at a font *size*; no font is measured."""
    return width(safe(text)) * size * _WIDE


def fitted(text: str, size: float, room: float) -> str:
    """Return *text* cut to *room* with an ellipsis where it is too wide."""
    text = safe(text)
    if text_width(text, size) <= room:
        return text
    columns = width("…")
    end = 0
    for end, char in enumerate(text):  # noqa: B007 - where it ends is what counts
        columns += width(char)
        if columns * size * _WIDE > room:
            break
    return text[:end].rstrip(" ·,-") + "…"


def wrapped(words: Iterable[str], size: float, room: float) -> list[str]:
    """Return *words* on as many lines as they need, none wider than *room* if it can be."""
    lines: list[str] = []
    for word in words:
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size) <= room:
            lines[-1] = longer
        else:
            lines.append(word)
    return [fitted(line, size, room) for line in lines]


def number(value: float) -> str:
    """Return *value* with at most one decimal: the picture is the same on every machine."""
    return f"{round(value, 1):g}" if abs(value) < 100_000 else str(round(value))


class Canvas(Struct):
    """Elements in the order of painting, and the room that they take."""

    parts: list[str] = field(default_factory=list)

    def element(self, name: str, tip: str = "", **values: Value) -> None:
        """Add an element; *tip* shows when the pointer rests on it."""
        head = f"<{name}{_attributes(values)}"
        inner = f"<title>{escape(safe(tip), quote=False)}</title></{name}>" if tip else ""
        self.parts.append(f"{head}>{inner}" if tip else f"{head}/>")

    def rect(self, x: float, y: float, w: float, h: float, tip: str = "", **values: Value) -> None:
        self.element("rect", tip, x=x, y=y, width=w, height=h, **values)

    def path(self, d: str, tip: str = "", **values: Value) -> None:
        """Add a line that is not filled."""
        self.element("path", tip, d=d, **{"fill": "none", **values})

    def text(self, x: float, y: float, text: str, size: float, **values: Value) -> None:
        """Add *text*; *y* is its base line."""
        defaults: dict[str, Value] = {"font_size": size, "fill": INK, "text_anchor": "middle"}
        head = _attributes({"x": x, "y": y, **defaults, **values})
        self.parts.append(f"<text{head}>{escape(safe(text), quote=False)}</text>")

    def label(
        self,
        x: float,
        y: float,
        text: str,
        size: float,
        *,
        ground: str = PAPER,
        color: str = INK,
    ) -> None:
        """Add *text* that stands on a line, on a patch of the colour behind it."""
        half = text_width(text, size) / 2 + 2
        self.rect(x - half, y - size * 0.86, 2 * half, size * 1.12, fill=ground)
        self.text(x, y, text, size, fill=color)

    def figure(self, w: float, h: float, title: str, about: str) -> str:
        """Return the picture as an element of an HTML page, described for screen readers.

        It has no background, and its natural size; a style sheet can scale it.
        """
        size = f'width="{number(w)}" height="{number(h)}" viewBox="0 0 {number(w)} {number(h)}"'
        head = (
            f'<svg {size} font-family="{FONT}" role="img" '
            'aria-labelledby="picture-title picture-about">\n'
            f'<title id="picture-title">{escape(safe(title), quote=False)}</title>\n'
            f'<desc id="picture-about">{escape(safe(about), quote=False)}</desc>\n'
        )
        return head + "".join(f"{part}\n" for part in self.parts) + "</svg>\n"

    def piece(self, w: float, h: float, title: str) -> str:
        """Return the picture as one of several elements of an HTML page."""
        size = f'width="{number(w)}" height="{number(h)}" viewBox="0 0 {number(w)} {number(h)}"'
        label = escape(safe(title))
        head = f'<svg {size} font-family="{FONT}" role="img" aria-label="{label}">\n'
        return head + "".join(f"{part}\n" for part in self.parts) + "</svg>\n"

    def document(self, w: float, h: float, title: str) -> str:
        size = f'width="{number(w)}" height="{number(h)}" viewBox="0 0 {number(w)} {number(h)}"'
        head = (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f'<svg xmlns="http://www.w3.org/2000/svg" version="1.1" {size} '
            f'font-family="{FONT}" role="img">\n'
            f"<title>{escape(safe(title), quote=False)}</title>\n"
            f'<rect width="{number(w)}" height="{number(h)}" fill="{PAPER}"/>\n'
        )
        return head + "".join(f"{part}\n" for part in self.parts) + "</svg>\n"


def _attributes(values: dict[str, Value]) -> str:
    """Return *values* as attributes; none of them is a word of the snapshot."""
    shown = {
        name.replace("_", "-"): value if isinstance(value, str) else number(value)
        for name, value in values.items()
    }
    return "".join(f' {name}="{escape(value)}"' for name, value in shown.items())


def elbow(x1: float, y1: float, x2: float, y2: float, turn: float) -> str:
    """Return the way down from one point to another, level only at the height *turn*."""
    start, end = f"M{number(x1)} {number(y1)}", f"V{number(y2)}"
    if abs(x1 - x2) < 0.05:
        return f"{start} {end}"
    return f"{start} V{number(turn)} H{number(x2)} {end}"
