"""The tables of settings in docs/operate/configuration.md, ours and NVIDIA's."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from nodetopo.kernel.settings.declare import key, options
from nodetopo.kernel.settings.explained import effect, explanation
from nodetopo.kernel.settings.nvidia.names import NAMES

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "configuration.md"


def made() -> Mapping[Path, str]:
    """Return the page with its tables renewed; its text stays."""
    text = PAGE.read_text("utf-8")
    for heading, rows in (("All settings", _own()), ("All settings of NVIDIA's plugin", _theirs())):
        before, title, rest = text.partition(f"\n## {heading}\n")
        section, next_title, after = rest.partition("\n## ")
        introduction, rule, _old = section.partition("| --- | --- |\n")
        text = "".join((before, title, introduction, rule, *rows, next_title, after))
    return {PAGE: text}


def owned() -> Iterable[Path]:
    """Return the page."""
    return (PAGE,)


def _own() -> Iterator[str]:
    for name, option in options().items():
        yield f"| `{key(name)}` | {explanation(name, option)} |\n"


def _theirs() -> Iterator[str]:
    for name in NAMES:
        names = "<br>".join(f"`{word}`" for word in name.all_names())
        yield f"| {names} | {effect(name)} |\n"
