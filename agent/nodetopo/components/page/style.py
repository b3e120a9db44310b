"""The look of the status page: one style sheet, light and dark, and its hash for the browser."""

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType

from nodetopo.drawing import canvas as look
from nodetopo.drawing.layout import Mark

_WORN, _BROKEN = "#ffe08a", "#f9d9cf"
"""Cards of GPUs: of a degraded one, not the tint of a NIC, and of an unhealthy one."""

MARKS: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "healthy": ("✓ healthy", look.GPU_FILL, look.GPU_LINE),
        "degraded": ("! degraded", _WORN, look.NIC_LINE),
        "unhealthy": ("✗ unhealthy", _BROKEN, look.BAD),
        "unknown": ("? unknown", look.CPU_FILL, look.CPU_EDGE),
    }
)
"""State of a GPU → its symbol and word, and the colours of its card; never the colour alone."""

HOLDERS = (
    ("#9fd3f2", "#1f4f6b"),
    ("#f5c766", "#6b4a0a"),
    ("#e3b3cf", "#6a3654"),
    ("#f3eb8a", "#5a5410"),
    ("#8fd6bd", "#14553f"),
    ("#f0a580", "#74361a"),
    ("#b9c7e8", "#33456f"),
    ("#cfcfc8", "#4a4a46"),
)
"""Colours of pods by their numbers, light and dark: tints of Okabe and Ito's. After eight pods they
repeat; the band names the pod in words."""

SEVERAL = ("#dcd3f0", "#46386b")
"""Of a GPU that several pods share."""

_DARK = (
    *((look.PAPER, "#16181c"), (look.INK, "#e8e8e6"), (look.FAINT, "#a8a8a4")),
    *((look.NUMA_FILL, "#1e2126"), (look.NUMA_LINE, "#5d6066"), (look.SOCKET_LINE, "#8a8a86")),
    *((look.CPU_FILL, "#30343b"), (look.SWITCH_FILL, "#1b3247"), (look.SWITCH_LINE, "#58b0e6")),
    *((look.GPU_FILL, "#123a2e"), (look.GPU_LINE, "#3fc79b")),
    *((look.NIC_FILL, "#3d3110"), (look.NIC_LINE, "#e0a52e")),
    *((look.OTHER_FILL, "#3a2733"), (look.OTHER_LINE, "#c892b1")),
    *((look.NVLINK, "#d681b6"), (look.NVLINK_FILL, "#3b2233")),
    *((look.WAY, "#ff8c3a"), (look.BAD, "#ff9d66"), (_WORN, "#5a4708"), (_BROKEN, "#4a2014")),
    *HOLDERS,
    SEVERAL,
)
"""The drawing's colours on a dark background; attributes of SVG yield to style sheets (SVG 2, 6.6
presentation attributes).
"""


def band(number: int | None, *, is_held: bool) -> str:
    """Return the colour behind a holder: of pod *number*, of several pods, or of none."""
    if not is_held:
        return look.PAPER
    return SEVERAL[0] if number is None else HOLDERS[(number - 1) % len(HOLDERS)][0]


def mark(state: str, holder: str | None, colour: str) -> Mark:
    word, fill, line = MARKS[state]
    return Mark(state=word, fill=fill, line=line, holder=holder, band=colour)


def _dark_drawing() -> str:
    return "".join(
        f'.drawing [{kind}="{light}"]{{{kind}:{dark}}}'
        for light, dark in dict(_DARK).items()
        for kind in ("fill", "stroke")
    )


_STEPS = (720, 960, 1200, 1440, 1720, 2000, 2400)
"""Widths of a window in CSS pixels from which a whole drawing is shown; below, its pieces."""

_LEAST_SCALE, _AROUND = 0.6, 34
"""How far a whole drawing shrinks, which leaves letters of 6 pixels; what stands beside it."""


def whole_class(width: float) -> str:
    """Return the class of a whole drawing of *width*: from which width of a window it is shown."""
    needed = width * _LEAST_SCALE + _AROUND
    return f"from-{next((step for step in _STEPS if step >= needed), _STEPS[-1])}"


def _forms() -> str:
    """Return which of the two forms of the drawing is shown."""
    return "".join(
        f"@media (max-width:{step - 1}px){{.from-{step}{{display:none}}"
        f".from-{step}+.pieces{{display:flex}}}}\n"
        for step in _STEPS
    )


STYLE = f"""
:root{{color-scheme:light dark;--ground:#fff;--ink:#1a1a1a;--faint:#5c5c5c;--line:#d5d5d0;
--card:#f6f6f4;--good:#006b4d;--warn:#7a5200;--bad:#a33c00;--link:#005a8c}}
@media (prefers-color-scheme:dark){{:root{{--ground:#16181c;--ink:#e8e8e6;--faint:#a8a8a4;
--line:#3a3d43;--card:#1e2126;--good:#3fc79b;--warn:#e0a52e;--bad:#ff9d66;--link:#7cc4f0}}
{_dark_drawing()}}}
*{{box-sizing:border-box}}
body{{margin:0;padding:0 1rem 2rem;background:var(--ground);color:var(--ink);
font:1rem/1.5 system-ui,-apple-system,"Segoe UI","Liberation Sans","DejaVu Sans",sans-serif;
overflow-wrap:anywhere}}
p,ul,article{{max-width:80rem}}
h1{{font-size:1.5rem;margin:1rem 0 .25rem}}
h2{{font-size:1.15rem;margin:2rem 0 .5rem;padding-top:.75rem;border-top:1px solid var(--line)}}
h3{{font-size:1rem;margin:0}}
p,ul,dl{{margin:.4rem 0}}
a{{color:var(--link)}}
code{{font-family:ui-monospace,"Liberation Mono","DejaVu Sans Mono",monospace;font-size:.9em}}
.faint{{color:var(--faint)}}
.good,.bad,.warn{{font-weight:600}}
.good{{color:var(--good)}}.bad{{color:var(--bad)}}.warn{{color:var(--warn)}}
nav ul{{display:flex;flex-wrap:wrap;gap:.2rem 1rem;list-style:none;padding:0}}
.verdict{{font-size:1.1rem}}
.drawing{{overflow-x:auto;border:1px solid var(--line);border-radius:.5rem}}
.drawing svg{{display:block;margin:0 auto;max-width:100%;height:auto}}
.pieces{{display:none;flex-wrap:wrap;gap:.75rem;padding:.75rem 0;border:0;align-items:flex-start}}
.pieces svg{{margin:0}}
.pieces ul{{flex-basis:100%;list-style:none;padding:0;color:var(--faint)}}
{_forms()}.card{{background:var(--card);border-left:.3rem solid var(--line);border-radius:.3rem;
padding:.6rem .8rem;margin:.6rem 0}}
.card.fail{{border-color:var(--bad)}}.card.warn{{border-color:var(--warn);font-weight:inherit;
color:inherit}}
.card dt{{font-weight:600;float:left;margin-right:.5rem}}.card dd{{margin:0 0 .2rem}}
table{{width:100%;border-collapse:collapse;font-size:.93rem}}
caption{{text-align:left;color:var(--faint);padding-bottom:.3rem}}
th,td{{text-align:left;vertical-align:top;padding:.3rem .6rem .3rem 0;
border-bottom:1px solid var(--line)}}
thead th{{color:var(--faint);font-weight:600;white-space:nowrap;overflow-wrap:normal}}
tbody th,td{{min-width:4.5rem}}
td span,.verdict span{{white-space:nowrap}}
tbody th{{font-weight:600}}
summary{{cursor:pointer}}
footer{{padding-top:.5rem;border-top:1px solid var(--line);color:var(--faint);font-size:.9rem}}
@media (max-width:45rem){{
thead{{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}}
table,tbody,tr,th,td,caption{{display:block}}
tr{{border-bottom:1px solid var(--line);padding:.3rem 0}}
tbody th,td{{border:0;padding:.05rem 0}}
td[data-label]::before{{content:attr(data-label) ": ";color:var(--faint)}}
td.none{{display:none}}
.brief{{display:flex;gap:0 .8rem}}.brief th,.brief td{{min-width:0}}
.brief td:nth-child(n+4),.brief td::before{{display:none}}
.verdict span{{white-space:normal}}}}
"""

POLICY = (
    "default-src 'none'; "
    f"style-src 'sha256-{b64encode(sha256(STYLE.encode()).digest()).decode()}'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy: no script, no external content, and only this style sheet. The empty
icon is a ``data:`` URL, without which browsers request /favicon.ico.
"""
