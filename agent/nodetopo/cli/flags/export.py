"""The flags of ``nodetopo export``."""

from nodetopo.cli.flags.cluster import add_cluster_source
from nodetopo.cli.flags.source import add_settings
from nodetopo.cli.parser import Parser, add_flags, add_style
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
    text = "-o --output FORMAT  yaml or json (default: yaml; json for runai)"
    add_flags(parser, text, output=("yaml", "json"))
    add_style(parser)
    add_cluster_source(parser)
    all_forms = {**FORMS, CLAIMS: CLAIM_FORMS}
    forms = "; ".join(f"{name}: {', '.join(forms)}" for name, forms in all_forms.items() if forms)
    add_flags(
        parser.add_argument_group("object"),
        f"""
    --levels KEY,…=  broadest first (default: chosen)
    --name NAME={DEFAULT_NAME}  name of the object (default: {DEFAULT_NAME})
    --form FORM  for {forms} (default: the first; for kubernetes the newest served)
    --size N#  pods of a group (default: the nodes of the largest place)
    --in-namespace NAME  namespace of a namespaced object
    --cluster-id UUID  ID of the cluster, for runai
    """,
    )
    _add_claims(parser)
    add_settings(parser, ("label_prefix",), "labels")
    parser.set_defaults(module="export")


def _add_claims(parser: Parser) -> None:
    group = parser.add_argument_group(
        "claims, for dra", "default: the machines whose GPUs the cluster's ResourceSlices publish"
    )
    add_flags(
        group.add_mutually_exclusive_group(),
        """
    --machine NAME  a bundled machine, see `nodetopo simulate machines`
    --snapshot FILE  a captured snapshot, or archive of `support`, - for stdin
    --slices FILE  `kubectl get resourceslices -o json` (or yaml), - for stdin, instead of a cluster
    """,
    )
    add_flags(
        group,
        """
    --sizes N,…  GPUs of a claim (default: 1,2,4,8,…, and all of a node)
    --driver NAME  driver of the GPUs: gpu.nvidia.com (default), nodetopo.io
    --device-class NAME  also write this class (default: the driver's own)
    """,
    )
    add = group.add_argument
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
    add_flags(group, "--cpus N#  CPUs for each GPU, with --with-cpus (default: 8)")
