"""The flags of ``nodetopo capture``."""

from nodetopo.cli.flags.source import add_source
from nodetopo.cli.parser import Parser, add_flags, add_style

_EPILOG = (
    "With --raw, DIR gets three files that replay this node anywhere. nvml.txt has every answer "
    "of NVML with its return code, sysfs.txt the files of /sys, /proc and the kubelet, and "
    "snapshot.json the snapshot without pods. With --scrub, invented values consistently replace "
    "identifying ones: serial numbers, UUIDs, GUIDs, GIDs, MAC addresses, and names of the node "
    "and of pods. The same applies to images, container IDs, node selectors, swap areas, writers "
    "of labels, and private values of variables. Unused kernel parameters and kubelet settings "
    "are left out. Product names, versions and PCI addresses stay."
)


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.epilog = _EPILOG
    add_flags(
        parser,
        """
    -o --output FILE!  - for stdout; with --raw a new DIR
    --raw  write a directory that replays the live node
    --scrub  replace identifiers of the node, devices and pods
    """,
    )
    add_style(parser)
    add_source(parser)
    parser.set_defaults(module="capture")
