"""Every exception this package raises on purpose.

::

    AgentError                  our environment or our input failed; carries the cure
    ├── InputError              the person gave something unusable (exit 2)
    │   ├── DecodeError         a document is malformed; carries the path inside it
    │   └── NothingFound        it is sound, and holds nothing of what is wanted
    └── UnreadableError         the node does not provide it (exit 3)
        ├── NvmlUnavailable     the NVML library is missing or does not initialise
        └── ApiUnavailable      the API server could not be reached or refused

A broken invariant of our own is a plain ``ValueError`` or ``AssertionError`` and is not caught.
"""

from collections.abc import Iterable

MAX_CAUSE = 320
"""Characters of a cause. A value of a document in it may have megabytes; with a cure the line stays
below 500, what a terminal shows in a few rows."""


class AgentError(Exception):
    """A failure with a cause and a cure, printed as ``error: cause — cure``."""

    def __init__(self, cause: str, cure: str = "") -> None:
        super().__init__(cause)
        self.cause = cause
        self.cure = cure

    def __str__(self) -> str:
        return f"{self.cause} — {self.cure}" if self.cure else self.cause


class InputError(AgentError):
    """What the caller gave cannot be used: a file, a name, a value.

    Of a long cause the middle is left out: it begins with the place, and ends with the problem.
    """

    def __init__(self, cause: str, cure: str = "") -> None:
        if len(cause) > MAX_CAUSE:
            half = MAX_CAUSE // 2 - 1
            cause = f"{cause[:half]}…{cause[-half:]}"
        super().__init__(cause, cure)


class DecodeError(InputError):
    """A document does not have the shape it claims.

    *path* names the place as a reader of the file would, e.g. ``gpus[3].pci``.
    """

    def __init__(self, path: str, problem: str, cure: str = "") -> None:
        super().__init__(f"{path}: {problem}" if path else problem, cure)
        self.path = path
        self.problem = problem

    def under(self, parent: str) -> "DecodeError":
        """Return the same error seen from one level further out."""
        joined = parent + self.path if self.path.startswith("[") else f"{parent}.{self.path}"
        return DecodeError(joined.rstrip("."), self.problem, self.cure)


class NothingFound(InputError):  # noqa: N818 - a state of the cluster, not a fault
    """What was given is sound, but holds nothing of what is wanted."""


class UnreadableError(AgentError):
    """The node lacks or withholds what is needed, so the answer is unknown."""


class NvmlUnavailable(UnreadableError):  # noqa: N818 - a state of the node, not a fault of ours
    """The NVML library cannot be loaded, does not initialise, or does not answer.

    *code* is the ``nvmlReturn_t`` of the call that failed, ``None`` where there is none.
    """

    def __init__(self, cause: str, cure: str = "", *, code: int | None = None) -> None:
        super().__init__(cause, cure)
        self.code = code


class ApiUnavailable(UnreadableError):  # noqa: N818 - same
    """The Kubernetes API server cannot be reached, or refused the request.

    *retry_after_s* is the pause in seconds that the server asked for, ``None`` if it did not.
    """

    def __init__(self, cause: str, cure: str = "", *, retry_after_s: float | None = None) -> None:
        super().__init__(cause, cure)
        self.retry_after_s = retry_after_s


def closest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the one of *known* that *name* may be meant for; ``None`` where none is similar.

    Args:
        cutoff: the least similarity, 0 to 1 (``difflib`` ratio).
    """
    from difflib import get_close_matches  # noqa: PLC0415 - only errors need it, slow to import

    return next(iter(get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)
