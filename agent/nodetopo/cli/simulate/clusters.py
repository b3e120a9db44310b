"""``nodetopo simulate clusters``: the bundled clusters."""

from argparse import Namespace
from typing import Any

from nodetopo.cli import output
from nodetopo.cli.output import Answer, emit
from nodetopo.machines import bundled
from nodetopo.tools.cluster.simulated import LAYOUTS


def run(args: Namespace) -> int:
    """List the bundled clusters; 0."""
    plain: list[dict[str, Any]] = []
    for name, layout in LAYOUTS.items():
        nodes = {rack.machine: 0 for rack in layout.racks}
        for rack in layout.racks:
            nodes[rack.machine] += len(rack.nodes)
        gpus = sum(len(bundled.machine(each).gpus) * count for each, count in nodes.items())
        plain.append(
            {
                "name": name,
                "nodes": sum(nodes.values()),
                "gpus": gpus,
                "machines": list(nodes),
                "description": layout.about,
            }
        )
    header = ("NAME", "NODES", "GPUS", "MACHINE", "DESCRIPTION")
    rows = [
        (
            each["name"],
            str(each["nodes"]),
            str(each["gpus"]),
            ", ".join(each["machines"]),
            each["description"],
        )
        for each in plain
    ]
    short = "".join(f"{each['name']}\n" for each in plain)
    emit(Answer(plain=plain, table=output.table([header, *rows]), short=short), args)
    return 0
