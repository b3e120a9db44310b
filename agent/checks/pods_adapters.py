"""What a value of ``NCCL_IB_HCA`` means on a node.

A list of names after ``^`` (all but these) and ``=`` (exactly these); without ``=`` each stands
for all names that begin with it. A colon and a port may follow a name
(NVIDIA/nccl v2.30.7-1, ``docs/userguide/source/env.rst``).
"""

from collections.abc import Collection, Iterator

from agent.checks.pods_parts import listed
from agent.model.hca import Hca, HcaKind
from agent.model.snapshot import Snapshot

MOST = 64
"""Names of a list that are looked at; NCCL itself takes 32 HCAs."""

SHOWN = 60
"""Characters of a value that are repeated."""


def adapters(snapshot: Snapshot, value: str) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with *value* on this node, and what would be right.

    Nothing is said of a list of exclusions, nor where HCAs belong to one network namespace
    each: the pod then sees others than the node.
    """
    if not value or value.startswith("^") or snapshot.hcas is None:
        return
    shown, is_exact = f"NCCL_IB_HCA={value[:SHOWN]}", value.startswith("=")
    names = [item.partition(":")[0] for item in value.removeprefix("=").split(",")[:MOST]]
    chosen = [hca for hca in snapshot.hcas if any(_picks(hca, one, is_exact) for one in names)]
    if not chosen and snapshot.hcas and _shares_hcas(snapshot):
        yield f"{shown}, and no HCA of this node is named so", listed(_able(snapshot))
    named = {hca.name for hca in chosen}.intersection(names)
    also = [hca.name for hca in chosen if _is_up(hca) and _is_more(hca.name, named)]
    if also and not is_exact:
        yield f"{shown}, which takes {listed(also)} too", f"NCCL_IB_HCA=={value[:SHOWN]}"
    fabric = [hca.name for hca in snapshot.management_hcas or () if hca.name in names]
    if fabric:
        yield f"{shown}, of which {listed(fabric)} is the NVLink fabric's", listed(_able(snapshot))


def _picks(hca: Hca, name: str, is_exact: bool) -> bool:
    return bool(name) and (hca.name == name if is_exact else hca.name.startswith(name))


def _is_more(name: str, named: Collection[str]) -> bool:
    """Return whether *name* is one of *named* with more digits, as ``mlx5_10`` is ``mlx5_1``."""
    return name not in named and any(
        name.startswith(one) and name[len(one) :].isdecimal() for one in named
    )


def _is_up(hca: Hca) -> bool:
    return any(port.state == "ACTIVE" for port in hca.ports)


def _able(snapshot: Snapshot) -> Iterator[str]:
    for hca in snapshot.hcas or ():
        if hca.kind is not HcaKind.SOFTWARE and _is_up(hca):
            yield hca.name


def _shares_hcas(snapshot: Snapshot) -> bool:
    return snapshot.kernel is not None and snapshot.kernel.rdma_netns == "shared"
