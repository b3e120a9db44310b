"""The goldens of labels and checks: one table each, of every machine.

A block stands for a key: a label, or the code of a rule with its area and claim. Below it is each
outcome, with the machines that have it; the most frequent is that of all ``others``. Machines read
from their ``nvidia-smi topo -m`` have outcomes of their own, marked ``topo-m``. So a new label or
rule is one block. The transcript of a command on a machine follows from the table, byte for byte.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.node_rules import node_rules

GOLDENS = Path(__file__).with_name("goldens")
TABLED: Mapping[tuple[str, ...], str] = {
    ("labels",): "labels",
    ("health", "--all"): "checks",
    ("audit", "--all"): "checks",
}
"""Commands whose goldens are tables, with the name of the table."""

ABSENT = "(absent)"
_OTHERS = "others"
_TOPO_M = "topo-m "
_WARNINGS = "warnings"
"""The key of what ``labels`` prints to standard error."""

_INDENT = " " * 15
"""Below a claim."""
_MISSING = "? not known: "
_RULE = re.compile(r"(?P<area>.{11})(?P<mark>\S) (?P<code>[A-Z]{3}-[0-9]{3}) (?P<claim>.*)")
_CLAIMS = {rule.code: rule.claim for rule in node_rules()}

Outcomes = Mapping[str, str]
"""Source → outcome; a source is a machine, or ``topo-m`` and a machine."""
Table = Mapping[str, Outcomes]


def source(machine: str, flag: str) -> str:
    """Return the source of what a command prints about *machine* given by *flag*."""
    return f"{_TOPO_M}{machine}" if flag == "--topo-m" else machine


# Tables as text.


def written(table: Table) -> str:
    """Return *table* as text."""
    return "\n".join(f"{key}\n{''.join(_block(outcomes))}" for key, outcomes in table.items())


def _block(outcomes: Outcomes) -> Iterator[str]:
    for prefix in ("", _TOPO_M):
        kind = {
            name.removeprefix(_TOPO_M): outcome
            for name, outcome in outcomes.items()
            if name.startswith(_TOPO_M) == bool(prefix)
        }
        counts = Counter(kind.values()).most_common()
        if prefix and [outcome for outcome, _ in counts] == [ABSENT]:
            continue
        for place, (outcome, _) in enumerate(counts):
            names = [_OTHERS] if not place else [n for n in kind if kind[n] == outcome]
            first, *more = outcome.splitlines()
            yield f"  {prefix}{' '.join(names)}: {first}\n"
            yield from (f"      {line}\n" for line in more)


def read(text: str, machines: Iterable[str]) -> Table:
    """Return the table in *text*, of *machines*."""
    table = {}
    for block in re.split(r"\n(?=\S)", text.removesuffix("\n")):
        key, *lines = block.strip("\n").split("\n")
        table[key] = _outcomes(lines, list(machines))
    return table


def _outcomes(lines: Sequence[str], machines: Sequence[str]) -> Outcomes:
    entries: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith("      "):
            entries[-1][1].append(line[6:])
        else:
            names, _, first = line.strip().partition(": ")
            entries.append((names, [first]))
    outcomes = {f"{prefix}{name}": ABSENT for prefix in ("", _TOPO_M) for name in machines}
    for names, outcome in entries:
        prefix = _TOPO_M if names.startswith(_TOPO_M) else ""
        listed = names.removeprefix(prefix).split(" ")
        for name in machines if listed == [_OTHERS] else listed:
            outcomes[f"{prefix}{name}"] = "\n".join(outcome)
    return outcomes


# Transcripts of labels.


def labels_in(transcript: str) -> Mapping[str, str]:
    """Return the outcomes of one source, by label, of a transcript of ``labels``."""
    first = transcript.partition("\nexit ")[0].splitlines()[1:]
    found = dict(line.split() for line in first if _is_label(line))
    warnings = [line for line in first if not _is_label(line)]
    return found | ({_WARNINGS: "\n".join(warnings)} if warnings else {})


def _is_label(line: str) -> bool:
    return len(line.split()) == 2


def labels_transcript(outcomes: Mapping[str, str], line: str) -> str:
    """Return what ``labels`` prints: *line* is the command."""
    found = {key: value for key, value in outcomes.items() if key != _WARNINGS}
    warnings = "".join(f"{text}\n" for text in outcomes.get(_WARNINGS, "").splitlines())
    width = max(map(len, found), default=0) + 2
    table = "".join(f"{key:{width}}{value}\n" for key, value in found.items())
    short = "".join(f"{key}={value}\n" for key, value in found.items())
    return f"$ {line}\n{table}{warnings}exit 0\n\n$ {line} -o short\n{short}{warnings}exit 0\n"


# Transcripts of checks.


def checks_in(transcript: str) -> Mapping[str, str]:
    """Return the outcomes of one source, by rule, of a transcript of ``health`` or ``audit``.

    An outcome is the mark, with the reason where the rule does not apply, then findings, remedy,
    and the inputs that are not known.
    """
    shown: dict[str, list[str]] = {}
    missing: dict[str, list[str]] = {}
    code = ""
    for line in transcript.partition("\nexit ")[0].splitlines()[1:-1]:
        if line.startswith(_MISSING):
            inputs, _, codes = line.rpartition(": ")
            for each in codes.split(", "):
                missing.setdefault(each, []).append(inputs)
        elif line.startswith(_INDENT):
            shown[code].append(line[len(_INDENT) :])
        elif rule := _RULE.fullmatch(line):
            code = rule["code"]
            shown[code] = [rule["mark"] + rule["claim"].removeprefix(_CLAIMS[code])]
        else:
            raise ValueError(f"neither a rule nor its details: {line}")
    codes_in_order = [code for code in _CLAIMS if code in shown or code in missing]
    return {
        key(code): "\n".join([*shown.get(code, ["?"]), *missing.get(code, ())])
        for code in codes_in_order
    }


def key(code: str) -> str:
    """Return the key of the block of a rule: its code, area and claim."""
    (rule,) = (rule for rule in node_rules() if rule.code == code)
    return f"{code} [{rule.area}] {rule.claim}"


def checks_transcript(outcomes: Mapping[str, str], line: str, snapshot: Snapshot) -> str:
    """Return what ``health`` or ``audit`` prints about *snapshot*: *line* is the command."""
    rows, short, last = "", "", ""
    marks: Counter[str] = Counter()
    missing: dict[str, list[str]] = {}
    for block, outcome in outcomes.items():
        code, _, rest = block.partition(" [")
        area, _, claim = rest.partition("] ")
        (first, *details) = outcome.splitlines()
        mark, reason = first[0], first[1:]
        marks[mark] += 1
        findings = [text for text in details if not text.startswith(_MISSING)]
        for inputs in details[len(findings) :]:
            missing.setdefault(inputs, []).append(code)
        if first == "?" and not findings:
            continue
        rows += f"{'' if area == last else area:11}{mark} {code} {claim}{reason}\n"
        rows += "".join(f"{_INDENT}{text}\n" for text in findings)
        last = area
        if mark in "!✗":
            what = "; ".join(re.sub(" {2,}", " ", text) for text in findings if text[0] != "→")
            short += f"{mark} {code} {claim}: {what} → `nodetopo explain {code}`\n"
    unknown = "".join(f"{inputs}: {', '.join(codes)}\n" for inputs, codes in missing.items())
    ends = f"exit {1 if marks['✗'] else 3 if marks['?'] else 0}\n"
    table = f"$ {line}\n{rows}{unknown}{_footer(marks, snapshot)}{ends}"
    return f"{table}\n$ {line} -o short\n{short}{unknown}{ends}"


def _footer(marks: Mapping[str, int], snapshot: Snapshot) -> str:
    names = {"✗": "failed", "!": "warned", "?": "unknown", "✓": "passed"}
    parts = [f"{marks[mark]} {name}" for mark, name in names.items()]
    parts += [f"{marks['·']} not applicable"] if marks["·"] else []
    where = [f"node {snapshot.node}"] if snapshot.node else []
    when = snapshot.captured_at
    where += [f"captured {when:%Y-%m-%dT%H:%M:%SZ}"] if when else []
    return " · ".join(parts) + (f"   {' · '.join(where)}" if where else "") + "\n"
