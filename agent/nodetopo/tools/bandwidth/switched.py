"""The expected bus bandwidth of GPUs behind NVSwitches, by operation, algorithm and message.

Rings and direct copies carry a share of a GPU's NVLinks. An all_reduce carries more where the
switches sum (NVLS), as the bus bandwidth counts bytes that then never travel.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from nodetopo.allocation.measured import Operation
from nodetopo.model.gpu import Gpu
from nodetopo.tools.bandwidth import published
from nodetopo.tools.bandwidth.expectation import Expected, Gate, of_payload, unknown
from nodetopo.tools.bandwidth.operation import NVLS, RINGS
from nodetopo.tools.bandwidth.published import Range

_SOURCE = f"{published.AZURE}; {published.SUPERBENCH}; {published.NCCL_TESTS_212}"


def over_switches(
    gpus: Sequence[Gpu],
    links: int,
    payload: float,
    operation: Operation,
    algorithms: frozenset[str],
) -> Expected:
    """Return the expectation of *operation* among *gpus* with *links* NVLinks each.

    Args:
        payload: GB/s that rings through the GPUs could carry.
        algorithms: those that NCCL can choose from.
    """
    architecture = gpus[0].architecture or ""
    share = _share(architecture, operation)
    if share is None:
        return unknown(f"nothing is published about {operation} over these NVSwitches")
    one = _of(share, payload)
    if operation is not Operation.ALL_REDUCE:
        return replace(one, assumes=(f"{operation}: {one.assumes[0]}",))
    highest = published.NVLS.get(architecture)
    if highest is not None and NVLS not in algorithms:
        return replace(one, assumes=(f"{operation} by rings, as the log says: {one.assumes[0]}",))
    whole = published.WHOLE_NODE.get((architecture, links))
    if whole is None or len(gpus) != published.WHOLE_NODE_GPUS:
        return one if highest is None else _of(Range(share.low, highest), payload)
    assumes = [f"{operation} of all eight GPUs"]
    if highest is not None:
        assumes.append(f"summed by the switches (NVLS); {one.low:.0f} and more by rings alone")
    is_h200 = "H200" in (gpus[0].product or "")
    return Expected(
        low=whole.low,
        high=whole.high,
        gate=published.WHOLE_NODE_GATE_H200 if is_h200 else whole.gate,
        gate_size=published.WHOLE_NODE_SIZE,
        floor=None if one.gate is None else Gate(one.gate, published.SWITCHED_SIZE),
        by_rings=None if highest is None else Range(share.low * payload, share.high * payload),
        over="NVSwitch",
        assumes=tuple(assumes),
        source=whole.source,
    )


def _share(architecture: str, operation: Operation) -> Range | None:
    """Return the share of the payload without NVLS; ``None`` where nothing is published."""
    if operation in (*RINGS, Operation.SENDRECV):
        return published.SWITCHED.get(architecture, published.RING)
    return published.ALLTOALL.get(architecture) if operation is Operation.ALLTOALL else None


def _of(share: Range, payload: float) -> Expected:
    one = of_payload(share, payload, over="NVSwitch", source=_SOURCE)
    return replace(one, gate_size=published.SWITCHED_SIZE)
