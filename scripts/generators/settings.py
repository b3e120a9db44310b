"""The lists of settings in docs/operate/configuration.md, ours and NVIDIA's."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from nodetopo.kernel.settings.declare import key, options
from nodetopo.kernel.settings.explained import effect, explanation
from nodetopo.kernel.settings.nvidia.names import NAMES

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "configuration.md"

_RESTART = "take effect when the daemon restarts. The\n  daemon logs changes to them:\n"
"""The words before the list of settings that are read once."""


def made() -> Mapping[Path, str]:
    """Return the page with its lists renewed; its text stays."""
    before, opening, rest = PAGE.read_text("utf-8").partition(_RESTART)
    _old, end, after = rest.partition("\n\n")
    text = f"{before}{opening}{_fixed()}{end}{after}"
    for heading, rows in (("All settings", _own()), ("All settings of NVIDIA's plugin", _theirs())):
        before, title, rest = text.partition(f"\n## {heading}\n")
        section, next_title, after = rest.partition("\n## ")
        introduction, rule, _old = section.partition("| --- | --- |\n")
        text = "".join((before, title, introduction, rule, *rows, next_title, after))
    return {PAGE: text}


def owned() -> Iterable[Path]:
    """Return the page."""
    return (PAGE,)


def _fixed() -> str:
    names = [f"`{key(name)}`" for name, option in options().items() if not option.is_live]
    lines = textwrap.wrap(f"{', '.join(names)}.", 98, break_on_hyphens=False)
    return "\n".join(f"  {line}" for line in lines)


def _own() -> Iterator[str]:
    for name, option in options().items():
        yield f"| `{key(name)}` | {explanation(name, option)} |\n"


def _theirs() -> Iterator[str]:
    for name in NAMES:
        names = "<br>".join(f"`{word}`" for word in name.all_names())
        yield f"| {names} | {effect(name)} |\n"
