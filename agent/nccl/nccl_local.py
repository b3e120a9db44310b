"""Which network devices a GPU uses, and which GPU a network device belongs to.

Facts: NVIDIA/nccl 2.30.7 ``src/graph/topo.cc`` (ncclTopoGetLocalNetType, ncclTopoGetLocalGpu)
with ``NCCL_NETDEVS_POLICY=AUTO``, the default.
"""

from collections.abc import Sequence

from agent.nccl.graph import Graph
from agent.nccl.nccl_search import Paths, local

CHANNELS = 64
"""Most channels of a communicator (MAXCHANNELS, src/include/device.h)."""


def share(
    paths: Paths, graph: Graph, gpu: str, all_gpus: Sequence[str], all_nets: Sequence[str]
) -> tuple[str, ...]:
    """Return the network devices of a GPU, that of channel 0 first; channels take them in turn.

    The nearest devices are divided among the GPUs that are nearest to the first of them; each
    GPU starts at its own, by NVML index, mirrored in its bits if the devices number a power
    of two. Empty where the GPU reaches no network device.
    """
    nearest = local(paths, gpu, all_nets)
    if not nearest:
        return ()
    sharers = len(local(paths, nearest[0], all_gpus)) or 1
    each = -(-len(nearest) // sharers)
    start = graph.gpus[gpu].index % sharers
    if is_power_of_two(len(nearest)):
        start = mirrored(start, len(nearest))
    return tuple(nearest[(start + turn) % len(nearest)] for turn in range(each))


def owner(
    paths: Paths, graph: Graph, net: str, all_gpus: Sequence[str], all_nets: Sequence[str]
) -> str | None:
    """Return the GPU that would use *net* on the earliest channel, ``None`` if none would."""
    shares = {
        gpu: share(paths, graph, gpu, all_gpus, all_nets) for gpu in local(paths, net, all_gpus)
    }
    for channel in range(CHANNELS):
        for gpu, taken in shares.items():
            if taken and taken[channel % len(taken)] == net:
                return gpu
    return None


def is_power_of_two(count: int) -> bool:
    """Return whether *count*, from 1, is a power of two."""
    return count & (count - 1) == 0


def mirrored(value: int, power: int) -> int:
    """Return *value* with its bits reversed, in as many bits as count up to *power*."""
    width = power.bit_length() - 1
    return sum(1 << (width - 1 - bit) for bit in range(width) if value >> bit & 1)
