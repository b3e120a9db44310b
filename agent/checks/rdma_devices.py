"""A rule on the device nodes by which programs reach HCAs."""

from collections.abc import Iterator

from agent.checks.inputs import (
    Inputs,
    adapters,
    because,
    first_of,
    hca_label,
    missing_hcas,
    no_adapters,
    unknown_of,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.hca import Hca
from agent.model.snapshot import Snapshot

DIRECTORY = "/dev/infiniband"


def _without_nodes(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(_findings(snapshot))


def _findings(snapshot: Snapshot) -> Iterator[Finding]:
    nodes = _nodes(snapshot)
    for hca in adapters(snapshot):
        verbs = _verbs(hca)
        if not verbs and hca.kind is not None:
            yield Finding(
                subject=hca_label(hca),
                observed="no uverbs device",
                expected="one, which the kernel module ib_uverbs makes",
            )
        elif verbs and nodes is not None and not verbs & nodes:
            yield Finding(
                subject=hca_label(hca),
                observed=f"no {DIRECTORY}/{min(verbs)}",
                expected="a device node",
            )


def _verbs(hca: Hca) -> frozenset[str]:
    return frozenset(name for name in hca.char_devices if name.startswith("uverbs"))


def _nodes(snapshot: Snapshot) -> frozenset[str] | None:
    """Return the names in the directory; ``None`` where it is empty or out of sight.

    The kernel makes a node for each uverbs device: where all are missing, it is the agent that
    sees too little of the host.
    """
    names = None if snapshot.host is None else snapshot.host.infiniband_devices
    return frozenset(names) if names else None


def _missing(snapshot: Snapshot) -> Inputs:
    nodes = () if _nodes(snapshot) is not None else (f"{DIRECTORY}{because(snapshot, 'host')}",)
    # A source that does not tell an adapter's kind is text, which names no devices.
    untold = (it.name for it in adapters(snapshot) if it.kind is None and not _verbs(it))
    return missing_hcas(snapshot) + nodes + unknown_of("uverbs devices", untold)


RULE = Rule(
    code="RDM-009",
    claim="every HCA has its device node",
    why="Without /dev/infiniband/uverbsN no program can use the HCA, and no device plugin can "
    "hand it to a pod.",
    area=Area.RDMA,
    suite=Suite.AUDIT,
    severity=Severity.ERROR,
    needs=_missing,
    check=_without_nodes,
    skips=first_of(no_adapters),
    remedy="`modprobe -a ib_uverbs rdma_ucm`, and have them loaded at boot (rdma-core does both)",
    reference="https://docs.kernel.org/infiniband/user_verbs.html",
)
