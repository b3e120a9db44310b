"""The package of a checkout, which an older one has in another place and by another name."""

from pathlib import Path


def package_of(checkout: Path) -> tuple[str, Path]:
    """Return the name of the package, and the directory that it is imported from."""
    source = checkout / "agent"
    return ("nodetopo", source) if (source / "nodetopo").is_dir() else ("agent", checkout)
