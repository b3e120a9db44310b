"""The file that changes how rules judge: other severities, and verdicts that are accepted."""

from collections.abc import Callable
from datetime import date
from pathlib import Path

from agent.checks.rule import Severity
from agent.checks.waivers import Terms, Waiver
from agent.config.data_files import read_text
from agent.config.document import Value
from agent.config.document import load as load_document
from agent.config.values import did_you_mean
from agent.errors import InputError

_KEYS = ("severities", "waivers")
_WAIVER = ("code", "reason", "until", "subject")
_NEEDED = ("code", "reason", "until")

Find = Callable[[str], str]
"""Returns the code of the rule that a person means, or raises InputError."""


def load(path: Path, today: date) -> Terms:
    """Return what the file *path* says, to be judged on *today*; an empty one says nothing.

    Raises:
        InputError: it cannot be read, or says something else; the text names the line.
    """
    from agent.checks.catalogue import rule  # noqa: PLC0415 - every rule, 0.3 s of CPU

    return _terms(path, today, lambda code: rule(code).code)


def check(path: Path) -> None:
    """Read the file *path* as :func:`load` does, but load no rule: any code will do.

    Raises:
        InputError: as there.
    """
    _terms(path, date.min, str)


def _terms(path: Path, today: date, find: Find) -> Terms:
    document, _warnings = load_document(str(path), read_text(path, "a file about checks"))
    entries = {} if document is None else _entries(document, _KEYS)
    severities, waivers = entries.get("severities"), entries.get("waivers")
    return Terms(
        severities={} if severities is None else _severities(severities, find),
        waivers=() if waivers is None else tuple(_waiver(one, find) for one in waivers.items()),
        today=today,
    )


def _once(value: Value) -> dict[str, Value]:
    """Return the entries of a map whose keys are all different."""
    for problem in value.repeated():
        value.refuse(f"a key twice: {problem}", "keep one of them")
    return value.entries()


def _entries(value: Value, known: tuple[str, ...]) -> dict[str, Value]:
    entries = _once(value)
    for name in entries.keys() - set(known):
        cure = f"keys are {', '.join(known)}{did_you_mean(name, known)}"
        entries[name].refuse(f"unknown key {name!r}", cure)
    return entries


def _severities(value: Value, find: Find) -> dict[str, Severity]:
    return {_code(code, one, find): _severity(one) for code, one in _once(value).items()}


def _severity(value: Value) -> Severity:
    found = value.scalar()
    if found not in set(Severity):
        value.expected(f"one of {', '.join(Severity)}")
    return Severity(str(found))


def _waiver(value: Value, find: Find) -> Waiver:
    entries = _entries(value, _WAIVER)
    for name in _NEEDED:
        if name not in entries:
            value.refuse(f"a waiver without {name!r}", f"a waiver needs {', '.join(_NEEDED)}")
    subject = entries.get("subject")
    return Waiver(
        code=_code(_text(entries["code"]), entries["code"], find),
        reason=_text(entries["reason"]),
        until=_date(entries["until"]),
        subject=None if subject is None else _text(subject),
    )


def _code(code: str, value: Value, find: Find) -> str:
    try:
        return find(code)
    except InputError as error:
        value.refuse(error.cause, error.cure)


def _text(value: Value) -> str:
    found = value.scalar()
    if not isinstance(found, str) or not found.strip():
        value.expected("a text")
    return found.strip()


def _date(value: Value) -> date:
    try:
        return date.fromisoformat(_text(value))
    except ValueError:
        value.expected("a date such as 2027-01-31")
