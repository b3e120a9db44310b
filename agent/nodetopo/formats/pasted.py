"""Lines of a pasted text, without what a terminal, a log collector or Markdown put around them.

A wrapper puts one prefix before every line: a time (``kubectl logs --timestamps``), a host
(``pdsh``, ``clush``), a pod (``kubectl logs --prefix``, ``stern``), a rank (``mpirun``, PRRTE,
``srun --label``), a task (Ray), a quote mark. There are more wrappers than anybody can list, so the
prefix is learned: a reader knows some lines of its tool by their words (the *anchor*), and what
stands before those words is the prefix. Only its times and ranks change from line to line.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

ANSI = re.compile(
    r"(?:\x1b|\^\[|\\(?:u001b|x1b|033|e))(?:\[[0-9;]*[A-Za-z]|\([0B])|\[[04]m",
)
"""A terminal's style code; its escape byte can be spelled out, as by ``cat -v`` and JSON."""

MOST_PREFIXES = 64
"""Prefixes learned from one text; a paste of more nodes than this is read for the first ones."""

MOST_GROUPED = 1 << 18
"""Lines of several sources that are put together; a longer text is read in its own order."""

LONGEST_PREFIX = 200
"""Characters; with two names of pods and a time there are about 160."""

_ANCHORS_TRIED = 4096
"""Lines with the anchor that are examined; a wrapper is known from the first."""

_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? "
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_CLOCK = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?"
_TIME = (
    rf"(?:[0-9]{{4}}[-/][0-9]{{2}}[-/][0-9]{{2}}[T ]{_CLOCK}(?: ?Z| ?[+-][0-9]{{2}}:?[0-9]{{2}})?"
    rf"|(?:{_DAY})?{_MONTH} [ 0-9][0-9] {_CLOCK}(?: [A-Z]{{3,5}})?(?: [0-9]{{4}})?"
    rf"|{_CLOCK}|[0-9]{{10}}\.[0-9]{{1,9}})"
)
"""ISO 8601 and its looser forms, ctime(3) and syslog, a clock, seconds of the epoch."""

_RANK = r"\[(?:[^\s\[\]@]{1,100}@)?[0-9]{1,6}(?:,[0-9]{1,6})?\](?:\[[^\]\s]{1,100}\])?"
"""``[1,0]`` of Open MPI 4, ``[prterun-node-7@1,0]`` and ``[…][node:pid]`` of PRRTE, ``[0]``."""

_CHANGING = (
    _TIME,
    _RANK,
    r"<std(?:out|err|diag)>",
    r"\bpid=[0-9]{1,10}",  # Ray: `(Worker pid=4711, ip=192.0.2.1)`
    r"^[0-9]{1,6}:$",  # `srun --label`
)
"""The parts of a prefix that differ among the lines of one source, as patterns."""

_PART = re.compile("|".join(f"(?P<p{at}>{pattern})" for at, pattern in enumerate(_CHANGING)))
_BRACKETS = " \t[](){}<>|:,"
_RULE = re.compile(r"[\s|:+=-]*")
_FEWEST_BARS = 3


class Line(NamedTuple):
    """A line of the text."""

    number: int  # from 1, in the text as pasted
    # Without prefix, style codes and the bars of a table; a Markdown table's cells are separated by
    # tabs.
    text: str
    source: int = 0  # numbers the prefixes from 0 in the order of their first anchor; 0 without one
    # The prefix of the source without times, ranks and brackets; empty without one.
    origin: str = ""


def unwrapped(text: str, anchor: re.Pattern[str], longest: int | None = None) -> Iterable[Line]:
    """Return the lines of *text*, those of each source together and sources in their order.

    A source is a prefix without its times and ranks: two hosts of ``pdsh`` are two, the ranks of
    one ``mpirun`` are one. Lines that have no prefix belong to the first source.

    Args:
        anchor: finds the beginning of the tool's own words in lines that always have them.
        longest: characters of a line that are looked at; ``None`` for all.
    """
    raw = text.splitlines()
    prefixes = _prefixes(text, anchor)
    are_grouped = len(prefixes) > 1 and len(raw) <= MOST_GROUPED
    origins = [*prefixes.values()] if are_grouped else [""] * len(prefixes)
    lines = _lines(raw, _any_of([*prefixes]), origins, longest)
    return sorted(lines, key=lambda line: line.source) if are_grouped else lines


def _any_of(prefixes: Sequence[str]) -> re.Pattern[str]:
    """Return the pattern of each of *prefixes* in a group of its own, the longest tried first."""
    groups = [f"(?P<s{at}>{prefix})" for at, prefix in enumerate(prefixes)]
    return re.compile(rf"\s*(?:{'|'.join(sorted(groups, key=len, reverse=True))}) ?")


def _lines(
    raw: Iterable[str], prefix: re.Pattern[str], origins: Sequence[str], longest: int | None
) -> Iterator[Line]:
    first = next(iter(origins), "")
    for number, cut in enumerate(raw, start=1):
        line, source, origin = _plain(cut[:longest]), 0, first
        if prefix.groups and (match := prefix.match(line)):
            source, line = int(str(match.lastgroup)[1:]), line[match.end() :]
            origin = origins[source]
        yield Line(number, _without_bars(line), source, origin)


def _plain(line: str) -> str:
    """Return *line* without style codes; web pages have no-break spaces in place of blanks."""
    has_codes = "[" in line or "(" in line
    return (ANSI.sub("", line) if has_codes else line).replace("\xa0", " ").lstrip("\ufeff")


def _prefixes(text: str, anchor: re.Pattern[str]) -> dict[str, str]:
    """Return the prefixes before the anchors in their order: pattern → origin."""
    shapes: dict[str, str] = {}
    line = -1
    for match in islice(anchor.finditer(text), _ANCHORS_TRIED):
        earliest = max(match.start() - 2 * LONGEST_PREFIX, 0)  # the rest can be style codes
        start = text.rfind("\n", earliest, match.start()) + 1
        if start == line or (start == 0 and earliest > 0):
            continue
        line = start
        lead = _plain(text[start : match.start()]).strip().rstrip("|").rstrip()
        if lead and len(lead) <= LONGEST_PREFIX and not _RULE.fullmatch(lead):
            shapes.setdefault(_shape(lead), _PART.sub("", lead).strip(_BRACKETS))
        if len(shapes) == MOST_PREFIXES:
            break
    return shapes


def _shape(lead: str) -> str:
    """Return the pattern of the prefix *lead*: times and ranks by their form, the rest as it is."""
    shape, end = "", 0
    for part in _PART.finditer(lead):
        kind = _CHANGING[int(str(part.lastgroup)[1:])]
        shape += _literal(lead[end : part.start()])
        # Atomic: what follows a part never makes it shorter, and a long prefix is tried in one way.
        shape += f"(?>{kind.removeprefix('^').removesuffix('$')})"
        end = part.end()
    return shape + _literal(lead[end:])


def _literal(text: str) -> str:
    r"""Return the pattern of *text*, in which blanks are as many as there are."""
    return r"\s*".join(map(re.escape, re.split(r"\s+", text)))


def _without_bars(line: str) -> str:
    """Return *line* without the bars of a table; the rule below a table's head as an empty line."""
    if not line.lstrip().startswith("|") and line.count("|") < _FEWEST_BARS:
        return line
    if _RULE.fullmatch(line):
        return ""
    return line.strip().removeprefix("|").removesuffix("|").rstrip().replace("|", "\t")


def body(text: str, first: re.Pattern[str], last: str) -> str:
    """Return the part of *text* from the match of *first* to the end of the final *last*.

    All of *text* where it lacks one of the two, or is XML from its beginning: its reader then says
    what is wrong.
    """
    if text.lstrip("\ufeff \t\r\n").startswith("<"):
        return text
    start = first.search(text)
    end = text.rfind(last)
    if start is None or end < start.start():
        return text
    return text[start.start() : end + len(last)]
