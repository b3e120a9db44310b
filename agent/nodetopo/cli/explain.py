"""``nodetopo explain WORD``: the meaning of a word that a node or its kubelet reports."""

from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from typing import Any

from nodetopo.cli import output
from nodetopo.cli.output import Answer, emit
from nodetopo.errors import InputError
from nodetopo.tools.explain.catalogue import close_to, entries, look_up
from nodetopo.tools.explain.entry import Entry, Kind

SCHEMA = "nodetopo/explain/v1"
"""Names the JSON shape, described by ``docs/reference/schema/explain.json``."""


def run(args: Namespace) -> int:
    """Print each meaning of the words, every entry with ``--all``, or the kinds; 0.

    Raises:
        InputError: no table has the word.
    """
    word = " ".join(args.word)
    if args.all and word:
        raise InputError("--all prints every entry", "leave out the word, or --all")
    if args.all:
        emit(_every(entries()), args)
    elif word:
        emit(_answer(word, _found(word)), args)
    else:
        emit(_kinds(), args)
    return 0


def _found(word: str) -> Sequence[Entry]:
    found = look_up(word)
    if not found:
        close = close_to(word)
        hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
        cure = f"{hint}`nodetopo explain --all` lists the words"
        raise InputError(f"nothing is known of {word!r}", cure)
    return found


def _answer(word: str, found: Sequence[Entry]) -> Answer:
    return Answer(
        plain={"schema": SCHEMA, "word": word, "entries": [_plain(entry) for entry in found]},
        table="\n".join(_page(entry) for entry in found),
        short="".join(f"{_cure(entry)}\n" for entry in found),
    )


def _page(entry: Entry) -> str:
    title = f"{entry.name} ({entry.kind}): {entry.meaning}"
    if entry.kind is Kind.CHECK:
        title = f"{entry.name}: {entry.meaning}"
    rows = [*entry.facts, *([("more", entry.page)] if entry.page else [])]
    return f"{output.clean(title)}\n\n{output.table(rows)}"


def _cure(entry: Entry) -> str:
    facts = dict(entry.facts)
    return output.clean(facts.get("what to do") or facts.get("class") or entry.meaning)


def _every(listed: Sequence[Entry]) -> Answer:
    rows = [(entry.kind.value, entry.name, entry.meaning) for entry in listed]
    return Answer(
        plain={"schema": SCHEMA, "word": None, "entries": [_plain(entry) for entry in listed]},
        table=output.table([("KIND", "WORD", "MEANING"), *rows]),
        short="".join(f"{entry.name} {output.clean(entry.meaning)}\n" for entry in listed),
    )


def _kinds() -> Answer:
    counts = Counter(entry.kind for entry in entries())
    examples = {entry.kind: entry.name for entry in reversed(entries())}
    rows = [(kind.value, str(counts[kind]), examples[kind]) for kind in Kind]
    table = output.table([("KIND", "WORDS", "EXAMPLE"), *rows])
    return Answer(
        plain={"schema": SCHEMA, "kinds": {kind.value: counts[kind] for kind in Kind}},
        table=f"{table}\nnodetopo explain WORD explains one, --all lists all.\n",
        short="".join(f"{kind} {counts[kind]}\n" for kind in Kind),
    )


def _plain(entry: Entry) -> dict[str, Any]:
    return {
        "kind": entry.kind.value,
        "name": entry.name,
        "aliases": list(entry.aliases),
        "meaning": entry.meaning,
        "facts": dict(entry.facts),
        "page": entry.page or None,
    }
