"""One gang, asked of one scheduler, and where it landed."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from tests.lab.api import Api, Object
from tests.lab.processes import Processes
from tests.lab.waiting import wait_for
from tests.nightly.gang import Gang

_TIMEOUT_S = 90.0


class Scheduler(Protocol):
    """What the trials need of a scheduler.

    Attributes:
        title: for a person.
    """

    title: str

    def start(self, kubeconfig: Path, processes: Processes) -> None:
        """Start its programs; what is exported is on the API server already."""

    def check_running(self) -> None:
        """Raise LabFailure if one of its programs has ended."""

    def ask(self, gang: Gang) -> None:
        """Create what the scheduler decides by; return before it does."""

    def admit(self, gang: Gang) -> None:
        """Wait for its consent and create the rest, where it consents before there are pods."""

    def group(self, gang: Gang) -> Object:
        """Return the object that holds the gang together."""

    def verdict(self, gang: Gang) -> str | None:
        """Return why the gang is not placed; ``None`` if the scheduler has not said so."""


class Placed(Struct, frozen=True, kw_only=True):
    """A gang whose pods are all bound.

    Attributes:
        nodes: of its pods, sorted; a node that holds two is named twice.
        took_s: from before its first object was created until the last pod was bound.
    """

    nodes: tuple[str, ...]
    took_s: float

    def domains(self, value_of: Mapping[str, str]) -> dict[str, int]:
        """Return how many pods are in each domain; *value_of* tells a node's."""
        return dict(Counter(value_of[node] for node in self.nodes))


@contextmanager
def placed(api: Api, scheduler: Scheduler, gang: Gang) -> Iterator[Placed]:
    """Have *gang* placed, and remove it after the block."""
    started = time.monotonic()

    def nodes() -> tuple[str, ...] | None:
        scheduler.check_running()
        found = gang.nodes(api)
        return found if len(found) == gang.size else None

    def evidence() -> str:
        return f"bound to {gang.nodes(api)}; {scheduler.verdict(gang)}"

    scheduler.ask(gang)
    try:
        scheduler.admit(gang)
        what = f"{scheduler.title} has bound all {gang.size} pods of {gang.name}"
        found = wait_for(what, nodes, timeout_s=_TIMEOUT_S, evidence=evidence)
        yield Placed(nodes=found, took_s=time.monotonic() - started)
    finally:
        gang.remove(api, scheduler.group(gang))


def place(api: Api, scheduler: Scheduler, gang: Gang) -> Placed:
    """Have *gang* placed, and remove it again."""
    with placed(api, scheduler, gang) as found:
        return found


def refusal(api: Api, scheduler: Scheduler, gang: Gang) -> str:
    """Return why *gang* is not placed, in the scheduler's words; no pod of it may be bound."""

    def verdict() -> str | None:
        scheduler.check_running()
        return scheduler.verdict(gang)

    scheduler.ask(gang)
    try:
        what = f"{scheduler.title} refuses {gang.name}"
        why = wait_for(what, verdict, timeout_s=_TIMEOUT_S)
        assert gang.nodes(api) == ()
        return why
    finally:
        gang.remove(api, scheduler.group(gang))
