"""The host's settings and its Node object without names that people chose."""

import re
from dataclasses import replace

from agent.model.host import HostSettings
from agent.model.node import NodeStatus
from agent.probes.capture.substitutes import Substitutes

PUBLIC_WRITERS = (
    "kubectl",
    "kubelet",
    "nfd",
    "nvidia",
    "gpu-",
    "nodetopo",
    "helm",
    "node-feature",
    "kube-",
)
"""How the names of field managers begin that are programs everybody runs."""

_PLAIN_SWAP = re.compile(r"/dev/(?:sd|vd|xvd|nvme|zram|dm-|md)[0-9a-z]{1,16}|/swap(?:file|\.img)")


def scrub_host(host: HostSettings | None, substitutes: Substitutes) -> HostSettings | None:
    """Return *host* with swap areas named by number where their names are not the kernel's."""
    if host is None or host.swaps is None:
        return host
    swaps = (
        area
        if _PLAIN_SWAP.fullmatch(area.name)
        else replace(area, name=f"/{substitutes.counted('swap', area.name)}")
        for area in host.swaps
    )
    return replace(host, swaps=tuple(swaps))


def scrub_node_status(status: NodeStatus | None, substitutes: Substitutes) -> NodeStatus | None:
    """Return *status* with writers of labels named by number where they are no known program."""
    if status is None or status.label_writers is None:
        return status
    writers = {
        label: tuple(sorted(_writer(name, substitutes) for name in names))
        for label, names in status.label_writers.items()
    }
    return replace(status, label_writers=writers)


def _writer(name: str, substitutes: Substitutes) -> str:
    return name if name.startswith(PUBLIC_WRITERS) else substitutes.counted("writer", name)
