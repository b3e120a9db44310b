"""The flags of ``nodetopo explain``."""

from collections.abc import Sequence

from nodetopo.cli.parser import Parser, add_flags, add_output

_OWN = ("--all", "--output", "--strict", "--no-color", "--help")


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.add_argument(
        "word",
        metavar="WORD",
        nargs="*",
        help="a check (NVL-001), an XID (79), an Event, alert, label, setting, metric, or a reason "
        "of the kubelet (default: list the kinds of words)",
    )
    add_flags(parser, "--all  list every word")
    add_output(parser)
    parser.set_defaults(module="explain")


def flags_as_words(argv: Sequence[str]) -> list[str]:
    """Return *argv* with flags that are no flags of this command as words without dashes.

    A setting is known by its flag: ``nodetopo explain --mig-strategy``.
    """
    return [
        word.lstrip("-") if word.startswith("--") and word.partition("=")[0] not in _OWN else word
        for word in argv
    ]
