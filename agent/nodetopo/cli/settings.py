"""The daemon's settings, as flags and the daemon's variables give them to a command."""

import dataclasses
import os
from argparse import Namespace

from msgspec.structs import replace

from nodetopo.cli.kubeconfig import usual_kubeconfig
from nodetopo.kernel.settings.declare import options
from nodetopo.kernel.settings.resolve import Resolved


def given(args: Namespace) -> dict[str, object]:
    """Return the settings that were given as flags, by field name."""
    return {name: value for name, value in vars(args).items() if name in options()}


def resolved(args: Namespace) -> Resolved:
    """Return the daemon's settings and their origins, as flags and its variables give them.

    The API server is reached as ``kubectl`` does, but for a pod's own account before the file in
    the home directory: ``--kubeconfig``, ``NODETOPO_KUBECONFIG``, ``KUBECONFIG``, the pod's
    account, ``~/.kube/config``.

    Raises:
        InputError: one of them is invalid.
    """
    flags = {name: value for name, value in given(args).items() if value is not None}
    resolved_settings = Resolved.of(flags=flags, environment=os.environ)
    if resolved_settings.settings.kubeconfig is not None:
        return resolved_settings
    return replace(
        resolved_settings,
        settings=dataclasses.replace(resolved_settings.settings, kubeconfig=usual_kubeconfig()),
    )
