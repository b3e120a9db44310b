"""The flags of ``nodetopo capture``."""

from nodetopo.cli.flags.source import add_source
from nodetopo.cli.parser import Parser, add_style

_EPILOG = (
    "With --raw, DIR gets three files that play this node anywhere: nvml.txt holds every answer "
    "of the NVML library with its return code, sysfs.txt those files of /sys, /proc and the "
    "kubelet that were read, snapshot.json what was found (without pods). With --scrub, serial "
    "numbers, UUIDs, GUIDs, GIDs, MAC addresses, names of the node and of pods are replaced by "
    "invented ones, the same everywhere, and so are images, container ids, node selectors, swap "
    "areas, writers of labels, and values of variables that are not public; kernel parameters and "
    "kubelet settings that are not read are left out. Product names, versions and PCI addresses "
    "stay."
)


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="- for stdout; with --raw a new DIR"
    )
    parser.add_argument(
        "--raw", action="store_true", help="write a directory that plays the live node"
    )
    parser.add_argument(
        "--scrub", action="store_true", help="replace what identifies node, devices and pods"
    )
    add_style(parser)
    add_source(parser)
    parser.set_defaults(module="capture")
