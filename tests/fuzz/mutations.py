"""Documents made from sound ones: cut, repeated, spliced, with values that hardly fit."""

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.tools.importers.mutations import damage

EXTREMES = (
    "-1",
    "0",
    "65535",
    "65536",
    "9" * 19,
    "9" * 5000,
    "1e400",
    "-0.0",
    "1e-400",
    "NaN",
    "Infinity",
    "null",
    "true",
    "\u0663",
    "0-65535",
    "0-4294967295",
    "0x" + "f" * 16,
    "a" * 3000,
    "\x00",
    "\u202e",
    "\x1b[31m",
    "",
    "[]",
    "{}",
    "*a",
    "&a [*a]",
    "<",
    "-",
)

VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    65536,
    1 << 31,
    1 << 64,
    10**400,
    1e308,
    -1e-308,
    "",
    "x",
    "0-65535",
    "N/A",
    "a" * 3000,
    "\ud800",
    "\x1b[2J",
    [],
    {},
    [[]],
    [None],
    {"": None},
)

LONGEST = 400_000
"""Characters of a drawn document."""

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


def mutated(seeds: Sequence[str], random: Random) -> str:
    """Return one of *seeds*, changed at one to four places."""
    text = random.choice(seeds)
    for _ in range(random.randint(1, 4)):
        change = random.choice(_CHANGES)
        text = change(text, seeds, random)[:LONGEST]
    return text


def _number(text: str, _seeds: Sequence[str], random: Random) -> str:
    """Replace a number."""
    found = list(_NUMBER.finditer(text))
    if not found:
        return text
    match = random.choice(found)
    return text[: match.start()] + random.choice(EXTREMES) + text[match.end() :]


def _value(text: str, _seeds: Sequence[str], random: Random) -> str:
    """Change one value of a JSON document; other texts lose or double a line."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return damage(text, random, times=1)
    places = list(_places(document))
    if not places:
        return json.dumps(random.choice(VALUES))
    parent, key = random.choice(places)
    match random.randrange(6):
        case 0:
            del parent[key]
        case 1:
            other, at = random.choice(places)
            parent[key] = other[at] if key in _keys(parent) and at in _keys(other) else None
        case 2 if isinstance(parent[key], list):
            most = 20_000 // max(len(json.dumps(parent[key])), 1)
            parent[key] = parent[key] * min(random.choice((2, 40, 700)), most)
        case 3:
            for _ in range(random.choice((1, 30, 90))):
                parent[key] = [parent[key]]
        case _:
            parent[key] = random.choice(VALUES)
    try:
        return json.dumps(document, indent=1)
    except (ValueError, RecursionError):  # a value was put into itself
        return text


def _keys(parent: Any) -> Any:
    return parent if isinstance(parent, dict) else range(len(parent))


def _places(document: Any) -> Any:
    """Yield the container and key of every value."""
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            for key in list(_keys(value)):
                yield value, key
                waiting.append(value[key])


def _line(text: str, seeds: Sequence[str], random: Random) -> str:
    """Drop, move, double or repeat a block of lines, or take it from another document."""
    lines = text.split("\n")
    begin = random.randrange(len(lines))
    end = min(len(lines), begin + random.choice((1, 2, 10)))
    block = lines[begin:end]
    match random.randrange(5):
        case 0:
            return "\n".join(lines[:begin] + lines[end:])
        case 1:
            at = random.randrange(len(lines))
            return "\n".join(lines[:at] + block + lines[at:])
        case 2:
            times = random.choice((1, 20, 1500))
            times = min(times, LONGEST // max(sum(map(len, block)), 1))
            return "\n".join(lines[:end] + block * times + lines[end:])
        case 3:
            other = random.choice(seeds).split("\n")
            start = random.randrange(len(other))
            return "\n".join(lines[:begin] + other[start : start + 5] + lines[end:])
        case _:
            return "\n".join([*lines[:begin], " " * random.choice((1, 8)), *lines[begin:]])


def _word(text: str, _seeds: Sequence[str], random: Random) -> str:
    """Replace a word by another one of the document, or by an extreme."""
    words = list(re.finditer(r"[^\s,:\"'=<>{}\[\]]+", text))
    if not words:
        return text
    match = random.choice(words)
    new = random.choice((random.choice(words)[0], random.choice(EXTREMES)))
    return text[: match.start()] + new + text[match.end() :]


def _element(text: str, _seeds: Sequence[str], random: Random) -> str:
    """Nest, repeat or drop what stands between two tags, or two brackets."""
    ends = [match.end() for match in re.finditer(r"[>}\]]", text)]
    if len(ends) < 2:
        return text
    begin, end = sorted((random.choice(ends), random.choice(ends)))
    part = text[begin:end]
    times = min(random.choice((0, 2, 20, 300)), LONGEST // max(len(part), 1))
    return text[:begin] + part * times + text[end:]


def _damage(text: str, _seeds: Sequence[str], random: Random) -> str:
    return damage(text, random, times=1)


_CHANGES: Sequence[Callable[[str, Sequence[str], Random], str]] = (
    _number,
    _number,
    _value,
    _value,
    _line,
    _word,
    _element,
    _damage,
)


def kernel_document(paths: Sequence[str], random: Random) -> str:
    """Return a document of the reader `kernel`: some files of a node with other contents."""
    contents = (
        *EXTREMES,
        "1\n",
        "-1\n",
        "0-3,5\n",
        "ff,ffffffff\n",
        "\x00" * 64,
        "\xff" * 300,
        "a\nb\nc\n",
        ("x" * 200 + "\n") * 50,
        "1 2 3\n" * 2000,
        "PCI_SLOT_NAME=0000:00:00.0\n",
    )
    chosen = [random.choice(paths) for _ in range(random.randint(1, 5))]
    return json.dumps({path: random.choice(contents) for path in chosen})
