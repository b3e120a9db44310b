"""What a command did, and what the tests of commands share."""

from dataclasses import dataclass

from agent.cli.output import Style
from agent.cli.topo.matrix import legend, text
from agent.machines.bundled import names
from agent.model.snapshot import Snapshot
from agent.topology.matrix import matrix

MACHINES = names()

READERS: tuple[tuple[str, ...], ...] = (
    ("topo", "matrix"),
    ("topo", "tree"),
    ("topo", "path", "GPU0", "GPU1"),
    ("topo", "complexes"),
    ("labels",),
    ("health",),
    ("audit",),
    ("allocate", "--size", "2"),
    ("nccl", "env"),
    ("nccl", "xml"),
)
"""Every command that answers from a snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Exit status and both outputs."""

    code: int
    out: str
    err: str


def topo_m(snapshot: Snapshot) -> str:
    """Return *snapshot* as `nvidia-smi topo -m` prints it."""
    found = matrix(snapshot)
    return text(found, snapshot, Style(is_on=False)) + legend(found)


def slug(command: tuple[str, ...]) -> str:
    """Return a command as part of a file name or a test's id."""
    return "-".join(word.strip("-").lower() for word in command)
