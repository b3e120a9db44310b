"""The ways to find the best set; which one suits a machine is decided by its shape."""

from typing import Protocol


class Engine(Protocol):
    """Find sets of one machine. All masks are of positions; *required* lies within *free*.

    Safe to share between threads. *size* lies between the counts of the two.
    """

    @property
    def name(self) -> str:
        """``tree`` or ``table``."""
        ...

    @property
    def is_exact(self) -> bool:
        """Whether the answer is proven to be the best of all."""
        ...

    def prepare(self) -> None:
        """Work out now what requests would otherwise have to wait for; at most once."""
        ...

    def best(self, *, free: int, required: int, size: int) -> int:
        """Return the best set."""
        ...

    def ranked(self, *, free: int, required: int, size: int, count: int) -> list[int]:
        """Return the *count* best sets, best first; fewer only where there are fewer."""
        ...
