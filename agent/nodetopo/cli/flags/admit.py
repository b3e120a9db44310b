"""The flags of ``nodetopo admit``."""

from argparse import ArgumentTypeError

from nodetopo.admission.merge import OPTIONS, POLICIES, SCOPES
from nodetopo.cli.flags.source import add_source
from nodetopo.cli.parser import Parser, add_flags, add_output

_EPILOG = (
    "The pods of the manifest arrive one after the other, and each gets the resources that "
    "earlier pods left. A controller gets as many replicas as fit, and is admitted if one fits. "
    "Exit status: 0 all pods are admitted, 1 a pod is rejected, 2 the manifest is unusable or the "
    "API server refuses it, 3 an input for the verdict is missing. The command reads the "
    "kubelet's settings, its state files or PodResources socket, and the running pods. It changes "
    "nothing."
)


def _option(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if name not in OPTIONS or not sign:
        raise ArgumentTypeError(f"{text!r} is not NAME=VALUE with NAME one of {', '.join(OPTIONS)}")
    return name, value


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.epilog = _EPILOG
    add_flags(parser, "--manifest FILE!  the manifest, - for stdin")
    group = parser.add_argument_group("what if", "default: the kubelet's own settings")
    add_flags(
        group,
        f"""
    --policy WORD  topologyManagerPolicy: {", ".join(POLICIES)}
    --scope WORD  topologyManagerScope: {" or ".join(SCOPES)}
    """,
        policy=POLICIES,
        scope=SCOPES,
    )
    group.add_argument(
        "--policy-option",
        action="append",
        type=_option,
        default=[],
        metavar="NAME=VALUE",
        help="one of topologyManagerPolicyOptions, such as max-allowable-numa-nodes=34; repeatable",
    )
    add_output(parser)
    add_source(parser)
    parser.set_defaults(module="admit")
