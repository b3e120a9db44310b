"""The flags of ``nodetopo export``."""

from nodetopo.cli.flags.cluster import add_cluster_source
from nodetopo.cli.flags.source import add_settings
from nodetopo.cli.parser import Parser, add_style
from nodetopo.tools.cluster.export.record import (
    CLAIM_FORMS,
    CLAIMS,
    DEFAULT_NAME,
    FORMS,
    SCHEDULERS,
)

_EPILOG = (
    "Levels come from labels that all selected nodes with GPUs carry, broadest first: region, "
    "zone, tiers, NVLink domain and partition, host. Warnings name omitted levels, and values "
    "that the scheduler would misread. The command writes nothing to the cluster: pass the output "
    "to `kubectl apply`. Claims (dra) come from a machine, or from the ResourceSlices that DRA "
    "drivers publish."
)


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "--for",
        dest="scheduler",
        required=True,
        choices=(*SCHEDULERS, CLAIMS),
        metavar="SCHEDULER",
        help=f"one of {', '.join(SCHEDULERS)}; or {CLAIMS}: claims of GPUs",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("yaml", "json"),
        metavar="FORMAT",
        help="yaml or json (default: yaml; json for runai)",
    )
    add_style(parser)
    add_cluster_source(parser)
    add = parser.add_argument_group("object").add_argument
    all_forms = {**FORMS, CLAIMS: CLAIM_FORMS}
    forms = "; ".join(f"{name}: {', '.join(forms)}" for name, forms in all_forms.items() if forms)
    add("--levels", default="", metavar="KEY,…", help="broadest first (default: chosen)")
    add("--name", default=DEFAULT_NAME, help=f"name of the object (default: {DEFAULT_NAME})")
    add("--form", help=f"for {forms} (default: the first; for kubernetes the newest served)")
    add(
        "--size",
        type=int,
        metavar="N",
        help="pods of a group (default: the nodes of the largest place)",
    )
    add("--in-namespace", metavar="NAME", help="namespace of a namespaced object")
    add("--cluster-id", metavar="UUID", help="ID of the cluster, for runai")
    _add_claims(parser)
    add_settings(parser, ("label_prefix",), "labels")
    parser.set_defaults(module="export")


def _add_claims(parser: Parser) -> None:
    group = parser.add_argument_group(
        "claims, for dra", "default: the machines whose GPUs the cluster's ResourceSlices publish"
    )
    source = group.add_mutually_exclusive_group()
    source.add_argument(
        "--machine",
        metavar="NAME",
        help="a bundled machine, see `nodetopo simulate machines`",
    )
    source.add_argument(
        "--snapshot",
        metavar="FILE",
        help="a captured snapshot, or archive of `support`, - for stdin",
    )
    source.add_argument(
        "--slices",
        metavar="FILE",
        help="`kubectl get resourceslices -o json` (or yaml), - for stdin, instead of a cluster",
    )
    add = group.add_argument
    add("--sizes", metavar="N,…", help="GPUs of a claim (default: 1,2,4,8,…, and all of a node)")
    add(
        "--driver", metavar="NAME", help="driver of the GPUs: gpu.nvidia.com (default), nodetopo.io"
    )
    add("--device-class", metavar="NAME", help="also write this class (default: the driver's own)")
    add(
        "--with-nics",
        metavar="DRIVER",
        nargs="?",
        const="dra.net",
        help="claim RDMA NICs too, of the driver dra.net by default",
    )
    add(
        "--with-cpus",
        metavar="DRIVER",
        nargs="?",
        const="dra.cpu",
        help="claim CPUs too, of the driver dra.cpu by default",
    )
    add("--cpus", type=int, metavar="N", help="CPUs for each GPU, with --with-cpus (default: 8)")
