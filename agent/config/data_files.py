"""The data files that settings name, as YAML or JSON: bandwidths, topology levels, checks."""

from collections.abc import Callable
from datetime import date
from pathlib import Path

from agent.allocation.measured import BandwidthTable, bandwidth_table
from agent.checks.rule import Severity
from agent.checks.waivers import Overrides, Waiver
from agent.config.values import did_you_mean
from agent.errors import DecodeError, InputError
from agent.formats import document as documents
from agent.formats.document import Value, read_configuration
from agent.formats.yaml import LOADER
from agent.labels.levels import LevelFile, level_file
from agent.model.codec import MAX_BYTES, load_json

MAX_YAML_BYTES = 1 << 18
"""Largest YAML accepted, some 6,000 entries: without its C parser, PyYAML needs about 20 s of CPU
for 1 MiB. JSON may have 16 MiB."""

_TABLE_CURE = "correct the file; docs/internals/placement.md describes it"
_LEVELS_CURE = "correct the file; docs/reference/topology-labels.md describes it"

_CHECKS_KEYS = ("severities", "waivers")
_WAIVER_KEYS = ("code", "reason", "until", "subject")
_WAIVER_NEEDS = ("code", "reason", "until")

FindRule = Callable[[str], str]
"""Returns the code of the rule that a person means, or raises InputError."""


def load(path: Path) -> BandwidthTable:
    """Return the measured bandwidths of the file *path*.

    Raises:
        InputError: it cannot be read, or is no such table.
    """
    return parse(str(path), read_text(path, "a bandwidth table"))


def parse(name: str, text: str) -> BandwidthTable:
    """Return the measured bandwidths that *text* holds; *name* is its file, for messages.

    Raises:
        InputError: it is no such table.
    """
    try:
        return bandwidth_table(document(text, _TABLE_CURE))
    except DecodeError as error:
        raise InputError(f"{name}: {error.cause}", error.cure or _TABLE_CURE) from None


def load_levels(path: Path) -> LevelFile:
    """Return where nodes stand in their cluster, as the file *path* says.

    Raises:
        InputError: it cannot be read, or is no such file.
    """
    text = read_text(path, "a file of levels")
    try:
        return level_file(document(text, _LEVELS_CURE))
    except DecodeError as error:
        raise InputError(f"{path}: {error.cause}", error.cure or _LEVELS_CURE) from None
    except InputError as error:
        raise InputError(f"{path}: {error.cause}", error.cure) from None


def load_checks(path: Path, today: date) -> Overrides:
    """Return the severities and waivers of the file *path*, for *today*; it may be empty.

    Raises:
        InputError: it cannot be read, or is no such file; the text names the line.
    """
    from agent.checks.catalogue import rule  # noqa: PLC0415 - every rule, 0.3 s of CPU

    return _checks(path, today, lambda code: rule(code).code)


def check(path: Path) -> None:
    """Read the file *path* as :func:`load_checks` does, but load no rule: any code is accepted.

    Raises:
        InputError: as there.
    """
    _checks(path, date.min, str)


def read_text(path: Path, what: str) -> str:
    """Return the text of the file *path*, which should be *what*, such as ``a bandwidth table``.

    Raises:
        InputError: it cannot be read, or is no text.
    """
    try:
        if not path.is_file():  # a device node could never end
            raise InputError(f"{path} is not a file", f"name {what}")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        return content.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", "check the path") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text", "save it as UTF-8") from None


def document(text: str, cure: str) -> object:
    """Return what *text* holds.

    Raises:
        DecodeError: neither JSON nor YAML, or too large; with *cure* where it has none better.
    """
    if text.lstrip().startswith("{"):
        try:
            return load_json(text)
        except DecodeError as error:  # may still be YAML, whose mappings can look like this
            if len(text) > MAX_YAML_BYTES:
                raise DecodeError("", error.problem, cure) from None
    if len(text) > MAX_YAML_BYTES:
        cause = f"larger than {MAX_YAML_BYTES >> 10} KiB of YAML"
        raise DecodeError("", cause, "save it as JSON, which is read faster")
    try:
        return documents.load(text, loader=LOADER)
    except ValueError as error:
        problem = str(error).removeprefix("not YAML: ")
        raise DecodeError("", f"not YAML: {problem}", cure) from None


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
