"""The machines that ship with the package, by name."""

from pathlib import Path

from nodetopo.errors import InputError, closest
from nodetopo.model.codec import decode
from nodetopo.model.snapshot import Snapshot

DEFAULT = "dgx-h100"
"""What `scripts/run` simulates where there is no GPU."""

_DIRECTORY = Path(__file__).parent


def names() -> tuple[str, ...]:
    """Return the names of all bundled machines, sorted."""
    return tuple(sorted(path.stem for path in _DIRECTORY.glob("*.json")))


def machine(name: str) -> Snapshot:
    """Return the bundled machine *name*, in whatever case it is written.

    Raises:
        InputError: there is none of that name.
    """
    wanted = name.strip().lower()
    if wanted not in names():
        close = closest(wanted, names())
        hint = f"did you mean {close!r}? " if close else ""
        known = ", ".join(names())
        raise InputError(f"unknown machine {name!r}", f"{hint}bundled are: {known}")
    return decode((_DIRECTORY / f"{wanted}.json").read_text("utf-8")).snapshot
