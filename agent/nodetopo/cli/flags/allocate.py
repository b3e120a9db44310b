"""The flags of ``nodetopo allocate``."""

from nodetopo.allocation.rules import Model, Policy
from nodetopo.cli.flags.source import add_source
from nodetopo.cli.parser import Parser, add_flags, add_output

NVIDIA = "nvidia"
"""NVIDIA's best-effort policy, imitated for comparison."""

POLICIES = (*(policy.value for policy in Policy), NVIDIA)


def add(parser: Parser) -> None:
    """Add the flags."""
    add_flags(
        parser,
        f"""
    --size N!#  number of GPUs
    --available A,B*  GPUs to choose from: 0,2 or 0-3 (default: all except lost GPUs and GPUs in
        MIG mode)
    --required A,B*  comma-separated GPUs that must be in the set
    --degraded A,B*  GPUs to choose last (default: degraded GPUs)
    --why-not A,B*  a set of the same size: also print the criterion it loses on
    --policy WORD={Policy.BEST}  {", ".join(POLICIES)} (default: best; nvidia is theirs, to compare)
    --bandwidth-model WORD={Model.RING}  {", ".join(Model)} (default: ring)
    --bandwidth-table FILE  measured bandwidths, YAML or JSON, - for stdin; they take precedence
        over the model
    """,
        policy=POLICIES,
        bandwidth_model=tuple(Model),
    )
    shared = parser.add_argument_group("shared GPUs", "default: whole GPUs")
    add_flags(
        shared.add_mutually_exclusive_group(),
        """
    --replicas N#  advertise each GPU N times, as UUID::0 to UUID::N-1
    --mig PROFILE  choose among the MIG instances of a profile: 1g.10gb
    """,
    )
    add_flags(
        parser, "--explain  also print the reasons with -o short, and the scores with -o table"
    )
    add_output(parser)
    add_source(parser)
    parser.set_defaults(module="allocate")
