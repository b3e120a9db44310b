"""The drawings of bundled machines in the documentation."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.cli.outcome import printed

_DOCS = Path(__file__).parents[2] / "docs"

COMMANDS = {
    _DOCS / "dgx-h100.svg": ("topo", "matrix", "--machine", "dgx-h100", "-o", "svg"),
    _DOCS / "dgx-1v.svg": ("topo", "path", "GPU0", "GPU6", "--machine", "dgx-1v", "-o", "svg"),
}


def made() -> Mapping[Path, str]:
    """Return each drawing."""
    return {path: printed(*command) for path, command in COMMANDS.items()}


def owned() -> Iterable[Path]:
    """Return the drawings of this generator; others are drawn by hand."""
    return COMMANDS
