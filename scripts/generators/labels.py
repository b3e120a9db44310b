"""The tables of the pages of labels: all labels, and the platforms of the topology family."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from nodetopo.components.labels.catalogue import CATALOGUE
from nodetopo.components.labels.levels import MAX_TIERS, PLATFORMS
from scripts.generators.registry import with_rows

_REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGE = _REFERENCE / "labels.md"
TOPOLOGY_PAGE = _REFERENCE / "topology-labels.md"


def made() -> Mapping[Path, str]:
    """Return both pages with their tables renewed; their text stays."""
    labels = {"| Label | Meaning | Source | Different values in a cluster |": _labels()}
    platforms = {"| Platform | Labels, tier 0 first | Written by |": _platforms()}
    return {
        PAGE: with_rows(PAGE, labels),
        TOPOLOGY_PAGE: with_rows(TOPOLOGY_PAGE, platforms),
    }


def owned() -> Iterable[Path]:
    """Return the files of this generator."""
    return (PAGE, TOPOLOGY_PAGE)


def _labels() -> Iterator[str]:
    for row in CATALOGUE:
        yield f"| `{row.key}` | {row.meaning} | {row.source} | {row.cardinality} |\n"


def _platforms() -> Iterator[str]:
    for platform in PLATFORMS:
        keys = platform.keys
        if len(keys) == MAX_TIERS:  # Topograph has no greatest tier
            keys = (keys[0], keys[1], "…")
        named = ", ".join(key if key == "…" else f"`{key}`" for key in keys)
        yield f"| `{platform.name}` | {named} | {platform.origin} |\n"
