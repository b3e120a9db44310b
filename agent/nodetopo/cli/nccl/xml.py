"""``nodetopo nccl xml``: the topology as a file for NCCL."""

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from nodetopo.cli.files import STDIO
from nodetopo.cli.output import Answer, emit, warn
from nodetopo.cli.source import files_of, from_snapshot, load
from nodetopo.errors import InputError
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.xml import topology_xml

if TYPE_CHECKING:
    from nodetopo.nccl.guest import Match

SCHEMA = "nodetopo/nccl-xml/v1"
"""Names the JSON shape, described by ``docs/reference/schema/nccl-xml.json``."""


def run(args: Namespace) -> int:
    """Print NCCL's topology XML; 0. With ``--like``, a warning names each unmatched device.

    Raises:
        InputError: the host's snapshot cannot be used, or none of its devices is here.
        UnreadableError: known facts do not suffice, e.g. no position in the PCI tree.
    """
    if args.like == STDIO and STDIO in files_of(args):
        raise InputError("standard input is named twice", "save one of them in a file")
    snapshot, more = load(args), {}
    if args.like is not None:
        snapshot, matches = _like(snapshot, args)
        more = {"devices": [_plain(match) for match in matches]}
    text = topology_xml(snapshot)
    emit(Answer(plain={"schema": SCHEMA, "xml": text, **more}, table=text, short=text), args)
    return 0


def _like(guest: Snapshot, args: Namespace) -> tuple[Snapshot, "tuple[Match, ...]"]:
    """Return *guest* with its devices at their places on the host, and what they match."""
    from nodetopo.nccl.guest import on_host  # noqa: PLC0415 - only for virtual machines
    from nodetopo.tools.capture.substitutes import is_substituted  # noqa: PLC0415 - as above

    host, unread = from_snapshot(args, args.like)
    for one in unread:
        warn(args, one.line)
    for name, snapshot in ((args.like, host), ("the guest's snapshot", guest)):
        if is_substituted(snapshot):
            cause = f"{name}: its UUIDs and GUIDs are substitutes, which say nothing about devices"
            raise InputError(cause, "capture it without --scrub")
    try:
        found = on_host(guest, host)
    except InputError as error:
        raise InputError(f"{args.like}: {error.cause}", error.cure) from None
    for match in found.matches:
        if match.reason is not None:
            warn(args, f"{match.device} stays where the guest shows it: {match.reason}")
    for remark in found.remarks:
        warn(args, remark)
    return found.snapshot, found.matches


def _plain(match: "Match") -> dict[str, Any]:
    return {
        "device": match.device,
        "host": match.host,
        "by": match.by,
        "reason": match.reason,
    }
