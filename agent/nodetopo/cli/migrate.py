"""``nodetopo migrate``: the fate of other programs' configuration, line by line."""

import os
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nodetopo.cli import output
from nodetopo.cli.files import STDIO, read_text, refuse_other
from nodetopo.cli.flags.migrate import CONFIG
from nodetopo.cli.output import Answer, Style, emit, note, say
from nodetopo.cli.writing import check_new_directory, write_directory
from nodetopo.errors import InputError
from nodetopo.formats.signatures import Reader
from nodetopo.tools.migrate.findings import LOST, Report, Verdict
from nodetopo.tools.migrate.forms import Form
from nodetopo.tools.migrate.overlay import configuration_texts, overlay
from nodetopo.tools.migrate.read import report

SCHEMA = "nodetopo.migrate/v1"

SUFFIXES = (".yaml", ".yml", ".json", ".conf")
"""Of the files of a directory that are read."""

MAX_BYTES = 2 << 20
"""Of one file; the API server takes objects of 1.5 MiB."""

MAX_FILES = 500
"""Of all directories together, and of streams."""

_COLOURS = {"differs": "33", "not supported": "31", "unknown": "35", "same": "32", "set": "36"}


def run(args: Namespace) -> int:
    """Print the verdicts; 0 no setting is lost, 1 one is, 3 a line could not be judged.

    Raises:
        InputError: a file cannot be read, or has an unknown form.
    """
    if args.write is not None:
        check_new_directory(args.write)
    sources = [(name, read_text(name, most=MAX_BYTES)) for name in _names(args.files)]
    findings = report(sources, None if args.form is None else Form(args.form))
    if not findings.findings:
        for name, text in sources:
            refuse_other(name, text, Reader.MIGRATE)
        raise InputError("nothing to judge was found", "name a file with configuration in it")
    if args.output == CONFIG:
        for name, text in configuration_texts(findings.plan).items():
            say(f"# the configuration {output.clean(name)}\n{text}")
    else:
        emit(_answer(findings, output.style(no_color=args.no_color)), args)
    if args.write is not None:
        write_directory(args.write, overlay(findings.plan, deploy=args.deploy))
        note("written", f"{args.write}: apply it with `kubectl apply -k {args.write}`")
    return {True: 0, False: 1, None: 3}[findings.is_lossless]


def _names(given: Sequence[str]) -> Iterator[str]:
    """Yield the named files, and the files of named directories by name."""
    count = 0
    for name in given:
        files = [name]
        if name != STDIO and Path(name).is_dir():
            files = sorted(_below(name))
            if not files:
                what = f"{name} has no file that ends with {', '.join(SUFFIXES)}"
                raise InputError(what, "name a file")
        count += len(files)
        if count > MAX_FILES:
            raise InputError(f"more than {MAX_FILES} files", "name fewer")
        yield from files


def _below(directory: str) -> Iterator[str]:
    """Yield the files of *directory* that can be configuration; links are not followed."""
    count = 0
    for folder, _folders, names in os.walk(directory, followlinks=False):
        for name in names:
            if name.endswith(SUFFIXES) and not Path(folder, name).is_symlink():
                count += 1
                if count > MAX_FILES:
                    raise InputError(f"{directory} has more than {MAX_FILES} files", "name fewer")
                yield str(Path(folder, name))


def _answer(found: Report, style: Style) -> Answer:
    rows = [("LINE", "VERDICT", "WRITTEN", "WHAT IT MEANS", "HERE")]
    short = ""
    plain: list[dict[str, Any]] = []
    for finding in found.findings:
        sets = [f"{word}: {text}" for word, text in finding.settings.items()]
        sets += [f"component {name}" for name in finding.components]
        rows.append(
            (finding.where, finding.verdict, finding.written, finding.means, ", ".join(sets))
        )
        if finding.verdict in (*LOST, Verdict.SET, Verdict.UNKNOWN):
            line = f"{finding.where}: {finding.verdict}: {finding.written}: {finding.means}"
            short += output.clean(f"{line} ({', '.join(sets)})" if sets else line) + "\n"
        plain.append(
            {
                "file": finding.file,
                "line": finding.line,
                "program": finding.program,
                "written": finding.written,
                "verdict": finding.verdict.value,
                "means": finding.means,
                "settings": dict(finding.settings),
                "components": list(finding.components),
            }
        )
    counts = {verdict.value: count for verdict, count in found.count().items()}
    summary = ", ".join(f"{count} {word}" for word, count in counts.items() if count) + "\n"
    lines = output.table(rows).splitlines(keepends=True)
    for verdict, colour in _COLOURS.items():
        if style.is_on:
            lines = [
                line.replace(f"  {verdict}  ", f"  {style.paint(verdict, colour)}  ", 1)
                for line in lines
            ]
    return Answer(
        plain={
            "schema": SCHEMA,
            "findings": plain,
            "summary": counts,
            "components": sorted(found.plan.components),
        },
        table="".join(lines) + summary,
        short=short + summary,
    )
