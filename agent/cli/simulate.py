"""``nodetopo simulate``: machines that one need not own."""

from argparse import Namespace
from typing import Any

from agent.cli import render
from agent.cli.output import Answer, emit
from agent.cli.parser import Subparsers, add_command, add_output
from agent.machines import bundled
from agent.model.snapshot import Origin


def add(subparsers: Subparsers) -> None:
    """Add the command and its subcommands."""
    parser = add_command(subparsers, "simulate", "list the bundled machines")
    what = parser.add_subparsers(metavar="WHAT", required=True)
    machines = add_command(what, "machines", "list the machines that --machine knows")
    add_output(machines)
    machines.set_defaults(run=run)


def run(args: Namespace) -> int:
    """List the bundled machines; 0."""
    plain = [_machine(name) for name in bundled.names()]
    header = ("NAME", "GPUS", "ORIGIN", "DESCRIPTION")
    rows = [
        (machine["name"], str(machine["gpus"]), machine["origin"], machine["description"])
        for machine in plain
    ]
    short = "".join(f"{machine['name']}\n" for machine in plain)
    emit(Answer(plain=plain, table=render.table([header, *rows]), short=short), args)
    return 0


def _machine(name: str) -> dict[str, Any]:
    snapshot = bundled.machine(name)
    provenance = snapshot.provenance
    return {
        "name": name,
        "gpus": len(snapshot.gpus),
        "origin": (provenance.origin if provenance else Origin.CAPTURED).value,
        "product": snapshot.gpus[0].product if snapshot.gpus else None,
        "hcas": len(snapshot.hcas or ()),
        "numa_nodes": len(snapshot.numa_nodes or ()),
        "description": provenance.description if provenance else "",
        "is_default": name == bundled.DEFAULT,
    }
