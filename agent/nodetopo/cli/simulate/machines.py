"""``nodetopo simulate machines``: the bundled machines."""

from argparse import Namespace
from typing import Any

from nodetopo.cli import output
from nodetopo.cli.output import Answer, emit
from nodetopo.machines import bundled
from nodetopo.model.snapshot import Origin


def run(args: Namespace) -> int:
    """List the bundled machines; 0."""
    plain: list[dict[str, Any]] = []
    for name in bundled.names():
        snapshot = bundled.machine(name)
        provenance = snapshot.provenance
        plain.append(
            {
                "name": name,
                "gpus": len(snapshot.gpus),
                "origin": (provenance.origin if provenance else Origin.CAPTURED).value,
                "product": snapshot.gpus[0].product if snapshot.gpus else None,
                "hcas": len(snapshot.hcas or ()),
                "numa_nodes": len(snapshot.numa_nodes or ()),
                "description": provenance.description if provenance else "",
                "is_default": name == bundled.DEFAULT,
            }
        )
    header = ("NAME", "GPUS", "ORIGIN", "DESCRIPTION")
    rows = [
        (machine["name"], str(machine["gpus"]), machine["origin"], machine["description"])
        for machine in plain
    ]
    short = "".join(f"{machine['name']}\n" for machine in plain)
    emit(Answer(plain=plain, table=output.table([header, *rows]), short=short), args)
    return 0
