"""The machines that ship with the package, by name."""

from difflib import get_close_matches
from importlib.resources import files

from agent.errors import InputError
from agent.model.codec import decode
from agent.model.snapshot import Snapshot

DEFAULT = "dgx-h100"
"""What `scripts/run` simulates where there is no GPU."""


def names() -> tuple[str, ...]:
    """Return the names of all bundled machines, sorted."""
    entries = (entry.name for entry in files("agent.machines").iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in entries if name.endswith(".json")))


def machine(name: str) -> Snapshot:
    """Return the bundled machine *name*.

    Raises:
        InputError: there is none of that name.
    """
    if name not in names():
        close = get_close_matches(name, names(), n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        known = ", ".join(names())
        raise InputError(f"unknown machine {name!r}", f"{hint}bundled are: {known}")
    text = files("agent.machines").joinpath(f"{name}.json").read_text("utf-8")
    return decode(text).snapshot
