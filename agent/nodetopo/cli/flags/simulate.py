"""The flags of ``nodetopo simulate``."""

from nodetopo.cli.parser import Parser, add_command, add_output


def add(parser: Parser) -> None:
    """Add the flags."""
    what = parser.add_subparsers(metavar="WHAT", required=True)
    machines = add_command(what, "machines", "list the machines for --machine")
    add_output(machines)
    machines.set_defaults(module="simulate.machines")
    clusters = add_command(what, "clusters", "list the clusters for --cluster")
    add_output(clusters)
    clusters.set_defaults(module="simulate.clusters")
