"""Real texts with the damage that copying does, and worse."""

from collections.abc import Callable
from random import Random

from hypothesis import strategies as st

_JUNK = (
    "",
    "\t",
    " ",
    "X",
    "NV18",
    "GPU0",
    "NIC0",
    "?",
    "-1",
    "9" * 30,
    "\x00",
    "\ufeff",
    "é",
    "<",
    '"',
)


def mutated(text: str) -> st.SearchStrategy[str]:
    """Copies of *text* with one to four lines, words or characters lost, doubled or replaced."""
    return st.tuples(st.randoms(use_true_random=False), st.integers(1, 4)).map(
        lambda drawn: damage(text, drawn[0], times=drawn[1]),
    )


def damage(text: str, random: Random, *, times: int) -> str:
    """Return *text* damaged at *times* places."""
    for _ in range(times):
        text = random.choice((_lines, _words, _characters, _end))(text, random)
    return text


def _lines(text: str, random: Random) -> str:
    return "\n".join(_changed(text.split("\n"), random))


def _words(text: str, random: Random) -> str:
    return "\t".join(_changed(text.split("\t"), random))


def _characters(text: str, random: Random) -> str:
    return "".join(_changed(list(text), random))


def _end(text: str, random: Random) -> str:
    return text[: random.randrange(len(text) + 1)]


def _changed(parts: list[str], random: Random) -> list[str]:
    at = random.randrange(len(parts)) if parts else 0
    change: Callable[[], list[str]] = random.choice(
        (
            list,
            lambda: parts[at : at + 1] * 2,
            lambda: [random.choice(parts or [""])],
            lambda: [random.choice(_JUNK)],
        ),
    )
    return [*parts[:at], *change(), *parts[at + 1 :]]
