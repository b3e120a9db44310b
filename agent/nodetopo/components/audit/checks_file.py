"""The file of severities and waivers that settings name."""

from collections.abc import Callable
from datetime import date
from pathlib import Path

from nodetopo.checks.rule import Severity
from nodetopo.checks.waivers import Overrides, Waiver
from nodetopo.errors import InputError
from nodetopo.formats.document import Value, read_configuration
from nodetopo.kernel.settings.data_files import read_text
from nodetopo.kernel.settings.values import did_you_mean

_CHECKS_KEYS = ("severities", "waivers")

_WAIVER_KEYS = ("code", "reason", "until", "subject")

_WAIVER_NEEDS = ("code", "reason", "until")

FindRule = Callable[[str], str]
"""Returns the code of the rule that a person means, or raises InputError."""


def load_checks(path: Path, today: date) -> Overrides:
    """Return the severities and waivers of the file *path*, for *today*; it may be empty.

    Raises:
        InputError: it cannot be read, or has another form; the text names the line.
    """
    from nodetopo.components.audit.catalogue import rule  # noqa: PLC0415 - every rule, 0.3 s of CPU

    return _checks(path, today, lambda code: rule(code).code)


def check(path: Path) -> None:
    """Read the file *path* as :func:`load_checks` does, but load no rule: any code is accepted.

    Raises:
        InputError: as there.
    """
    _checks(path, date.min, str)


def _checks(path: Path, today: date, find: FindRule) -> Overrides:
    root, _warnings = read_configuration(str(path), read_text(path, "a file about checks"))
    entries = {} if root is None else _entries(root, _CHECKS_KEYS)
    severities: dict[str, Severity] = {}
    if (section := entries.get("severities")) is not None:
        for code, value in _once(section).items():
            known = _code(code, value, find)
            severity = value.scalar()
            if severity not in set(Severity):
                value.expected(f"one of {', '.join(Severity)}")
            severities[known] = Severity(str(severity))
    section = entries.get("waivers")
    waivers = () if section is None else tuple(_waiver(item, find) for item in section.items())
    return Overrides(severities=severities, waivers=waivers, today=today)


def _waiver(value: Value, find: FindRule) -> Waiver:
    entries = _entries(value, _WAIVER_KEYS)
    for name in _WAIVER_NEEDS:
        if name not in entries:
            value.refuse(f"a waiver without {name!r}", f"a waiver needs {', '.join(_WAIVER_NEEDS)}")
    code = _code(_text(entries["code"]), entries["code"], find)
    reason = _text(entries["reason"])
    try:
        until = date.fromisoformat(_text(entries["until"]))
    except ValueError:
        entries["until"].expected("a date such as 2027-01-31")
    subject = entries.get("subject")
    return Waiver(
        code=code,
        reason=reason,
        until=until,
        subject=None if subject is None else _text(subject),
    )


def _once(value: Value) -> dict[str, Value]:
    """Return the entries of a map whose keys are all different."""
    for problem in value.repeated():
        value.refuse(f"a key twice: {problem}", "keep one of them")
    return value.entries()


def _entries(value: Value, known: tuple[str, ...]) -> dict[str, Value]:
    """Return the entries of a map that has none but *known* keys."""
    entries = _once(value)
    for name in entries.keys() - set(known):
        cure = f"keys are {', '.join(known)}{did_you_mean(name, known)}"
        entries[name].refuse(f"unknown key {name!r}", cure)
    return entries


def _code(code: str, value: Value, find: FindRule) -> str:
    try:
        return find(code)
    except InputError as error:
        value.refuse(error.cause, error.cure)


def _text(value: Value) -> str:
    text = value.scalar()
    if not isinstance(text, str) or not text.strip():
        value.expected("a text")
    return text.strip()
