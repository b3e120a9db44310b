"""The manual pages, made from the parsers: nodetopo(1) and one page for each command.

The wheel installs ``agent/man`` below ``share/man/man1``. The language is man(7).
"""

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from nodetopo.cli.main import COMMANDS, parser
from nodetopo.cli.words import Level, levels

FOLDER = Path(__file__).parents[2] / "agent" / "man"

EXIT_STATUS = (
    ("0", "Nothing failed."),
    ("1", "A check failed, or with --strict a warning was printed."),
    ("2", "Bad usage or bad input."),
    ("3", "The answer could not be determined."),
)

FILES = (
    ("/run/nodetopo/health.json", "The health of GPUs, which outlives the daemon."),
    ("/run/nodetopo/log", "The daemon's last log lines, for nodetopo-support(1)."),
)


def pages() -> Mapping[str, str]:
    """Return file name → page."""
    whole = parser()
    found = tuple(levels(whole))
    texts = {"nodetopo.1": _main_page(whole)}
    for command in COMMANDS:
        own = [one for one in found if one.path.split()[:1] == [command.name]]
        texts[f"nodetopo-{command.name}.1"] = _command_page(command.summary, own)
    return texts


def _main_page(whole: argparse.ArgumentParser) -> str:
    lines = [
        *_head("nodetopo", "topology, labels, placement and checks of GPU nodes"),
        ".SH SYNOPSIS",
        ".B nodetopo",
        ".I COMMAND",
        "[\\fIOPTION\\fR ...]",
        ".SH DESCRIPTION",
        _text(whole.description or ""),
        "Each command has a page of its own.",
        ".SH COMMANDS",
    ]
    for command in COMMANDS:
        lines += [".TP", f".BR nodetopo\\-{_text(command.name)} (1)", _sentence(command.summary)]
    lines += [".SH EXIT STATUS"]
    for status, meaning in EXIT_STATUS:
        lines += [".TP", f".B {status}", _text(meaning)]
    lines += [".SH ENVIRONMENT", ".TP", ".B NODETOPO_*"]
    lines += [_text("Each setting of the daemon, such as NODETOPO_NODE_NAME; see nodetopo-run(1).")]
    lines += [".TP", ".B NO_COLOR", _text("No colours, whatever its value.")]
    lines += [".TP", ".B KUBECONFIG", _text("How to reach the API server.")]
    lines += [".SH FILES"]
    for path, meaning in FILES:
        lines += [".TP", f".I {_text(path)}", _text(meaning)]
    lines += [".SH EXAMPLES", ".nf", "nodetopo topo matrix \\-\\-machine dgx\\-h100"]
    lines += ["nodetopo audit \\-\\-manifest pod.yaml", "kubectl nodetopo gpu\\-17 health", ".fi"]
    return "\n".join(lines) + "\n"


def _command_page(summary: str, found: list[Level]) -> str:
    first = found[0]
    lines = [*_head(f"nodetopo{first.path}".replace(" ", "-"), summary), ".SH SYNOPSIS"]
    for level in found:
        if not _has_children(level):
            lines += [".PP" if lines[-1] != ".SH SYNOPSIS" else '.\\"', *_synopsis(level)]
    lines += [".SH DESCRIPTION", _sentence(first.parser.description or summary)]
    if first.parser.epilog:
        lines += [".PP", _text(first.parser.epilog)]
    for level in found:
        if level is not first:
            lines += [f".SS nodetopo {_text(level.path)}", _text(level.parser.description or "")]
            if level.parser.epilog:
                lines += [".PP", _text(level.parser.epilog)]
        for group in level.parser._action_groups:  # noqa: SLF001 - argparse has no public way
            lines += _options(group, is_sub=level is not first)
    lines += [".SH SEE ALSO", ".BR nodetopo (1)"]
    return "\n".join(lines) + "\n"


def _head(name: str, summary: str) -> list[str]:
    title = _text(name.upper())
    return [
        '.\\" Made by scripts/generate man.',
        f'.TH {title} 1 "" nodetopo "User Commands"',
        ".SH NAME",
        f"{_text(name)} \\- {_text(summary)}",
    ]


def _synopsis(level: Level) -> Iterator[str]:
    yield f".B nodetopo {_text(level.path)}"
    yield "[\\fIOPTION\\fR ...]"
    for action in level.parser._actions:  # noqa: SLF001 - as above
        if not action.option_strings and not isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            name = f"\\fI{_text(str(action.metavar or action.dest))}\\fR"
            yield f"[{name}]" if action.nargs in ("?", "*") else name


def _options(group: argparse._ArgumentGroup, *, is_sub: bool) -> Iterator[str]:
    shown = [
        action
        for action in group._group_actions  # noqa: SLF001 - as above
        if action.help != argparse.SUPPRESS and not isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
    ]
    if not shown:
        return
    title = (group.title or "options").capitalize()
    yield ".PP" if is_sub else f".SS {_text(title)}"
    if is_sub:
        yield f".B {_text(title)}"
    if group.description:
        yield _text(group.description)
    for action in shown:
        yield ".TP"
        value = "" if action.nargs == 0 else f" \\fI{_text(str(action.metavar or action.dest))}\\fR"
        names = [f"\\fB{_text(name)}\\fR" for name in action.option_strings]
        yield ", ".join(names) + value if names else value.strip()
        yield _text((action.help or "") % {"default": action.default, "prog": "nodetopo"})


def _has_children(level: Level) -> bool:
    return any(
        isinstance(action, argparse._SubParsersAction)  # noqa: SLF001 - as above
        for action in level.parser._actions  # noqa: SLF001 - as above
    )


def _sentence(text: str) -> str:
    """Return *text* as a sentence."""
    text = text[:1].upper() + text[1:]
    return _text(text if text.endswith(".") else f"{text}.")


def _text(text: str) -> str:
    """Return *text* so that roff prints it as it is: man(7), "Portability"; one line."""
    plain = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    plain = re.sub(r"[^\x00-\x7f]", lambda char: f"\\[u{ord(char[0]):04X}]", plain)
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


def made() -> Mapping[Path, str]:
    """Return every page."""
    return {FOLDER / name: page for name, page in pages().items()}


def owned() -> Iterable[Path]:
    """Return the stored pages."""
    return FOLDER.iterdir()
