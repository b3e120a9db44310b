"""Flags that choose a reader's snapshot or describe the live node."""

from argparse import SUPPRESS, BooleanOptionalAction

from nodetopo.cli.parser import Parser, add_flags

NODE_SETTINGS = (
    "sysfs_root",
    "procfs_root",
    "host_root",
    "nvml_library",
    "node_name",
    "kubeconfig",
    "pod_resources_socket",
    "kubelet_url",
    "kubelet_ca_file",
    "kubelet_insecure_tls",
)
"""Those that every command of a node takes as flags, though not each needs all of them."""

KUBECONFIG_HELP = "kubeconfig for the API server; default as for kubectl"
"""Help of ``--kubeconfig``; the daemon has another default and another text."""


def add_source(parser: Parser) -> None:
    """Add the flags that choose the source and describe the live node."""
    group = parser.add_argument_group("source", "one of these; default: the live node")
    add_flags(
        group.add_mutually_exclusive_group(),
        """
    --snapshot FILE  a captured snapshot, or archive of `support`, - for stdin
    --machine NAME  a bundled machine, see `nodetopo simulate machines`
    --topo-m FILE  the text of `nvidia-smi topo -m`, - for stdin
    --nccl-xml FILE  an NCCL topology (NCCL_TOPO_DUMP_FILE), - for stdin
    """,
    )
    add_node(parser)


def add_node(parser: Parser, *, without: tuple[str, ...] = ()) -> None:
    """Add the flags of the live node, except *without*, which the command adds itself."""
    names = tuple(name for name in NODE_SETTINGS if name not in without)
    add_settings(parser, names, "live node", collapsed="paths and addresses of this node")


def add_settings(
    parser: Parser, names: tuple[str, ...], title: str, *, collapsed: str | None = None
) -> None:
    """Add a flag for each of the settings *names*; those not given stay out of the result.

    The short help shows the text *collapsed*, if any, in place of the flags.
    """
    if not parser.has_settings:
        return
    from nodetopo.kernel.settings.declare import (  # noqa: PLC0415 - as long as a command runs
        key,
        options,
    )

    group = parser.add_argument_group(title)
    if collapsed is not None:
        parser.collapse(group, collapsed)
    known = options()
    for name in names:
        if (option := known.get(name)) is None:
            continue  # of a component that is not installed
        flag = f"--{key(name)}"
        text = KUBECONFIG_HELP if name == "kubeconfig" else option.help
        if option.metavar == "BOOL":
            group.add_argument(
                flag, dest=name, action=BooleanOptionalAction, default=SUPPRESS, help=text
            )
        else:
            group.add_argument(flag, dest=name, metavar=option.metavar, default=SUPPRESS, help=text)
