"""The flags of ``nodetopo topo``."""

from argparse import BooleanOptionalAction

from nodetopo.cli.flags.source import add_source
from nodetopo.cli.parser import FORMATS, Parser, add_command, add_flags, add_output


def add(parser: Parser) -> None:
    """Add the flags."""
    what = parser.add_subparsers(metavar="WHAT", required=True)
    matrix = add_command(what, "matrix", "print the connection of each pair of devices")
    add_flags(
        matrix,
        """
    --wide  aligned columns, with NUMA node, PCI address and link, nearest NIC, NVLink island, rail
    --nccl  NCCL's path types instead of nvidia-smi's levels; no effect on svg
    """,
    )
    tree = add_command(what, "tree", "print the PCIe tree and the NVLink islands")
    path = add_command(what, "path", "print the path between devices and its expected bandwidth")
    path.add_argument(
        "a", metavar="FROM", help="a device: index, GPU0, UUID, PCI address, or name of a NIC"
    )
    path.add_argument("b", metavar="TO", help="another device")
    path.add_argument(
        "more",
        metavar="GPU",
        nargs="*",
        default=[],
        help="more GPUs: print the bandwidth of the whole set",
    )
    add_flags(
        path,
        """
    --bandwidth-table FILE  measured bandwidths, YAML or JSON; they take precedence over the model
    """,
    )
    complexes = add_command(
        what, "complexes", "group GPUs and NICs below one PCIe switch, and check ACS"
    )
    complexes.add_argument(
        "--virt",
        action=BooleanOptionalAction,
        help="whether NICs and GPUs are for virtual machines; default: from the NICs' "
        "configuration",
    )
    drawn = (("matrix", matrix), ("tree", tree), ("path", path))
    for name, reader in (*drawn, ("complexes", complexes)):
        is_drawn = reader is not complexes
        add_output(reader, formats=(*FORMATS, "svg") if is_drawn else FORMATS)
        add_source(reader)
        reader.set_defaults(module=f"topo.{name}")
