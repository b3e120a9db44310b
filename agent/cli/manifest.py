"""The pods of a manifest that a flag names."""

from argparse import Namespace

from agent.cli.files import STDIO, read_text
from agent.errors import InputError
from agent.kubeapi.pods import pods_from_manifest
from agent.model.pod import Pod


def pods_of_manifest(args: Namespace) -> tuple[Pod, ...]:
    """Return the pods of the file that ``--manifest`` names, a controller's template as one pod.

    Raises:
        InputError: it cannot be read, is no manifest, holds no pod, or is standard input, which
            the node is to be read from.
    """
    name: str = args.manifest
    if name == STDIO and STDIO in (args.snapshot, args.topo_m, args.nccl_xml):
        raise InputError("standard input is named twice", "save one of them in a file")
    text = read_text(name)
    try:
        return pods_from_manifest(text)
    except InputError as error:
        raise InputError(f"{name}: {error.cause}", error.cure) from None
