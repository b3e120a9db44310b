"""Remarks on how HCAs use the PCIe bus."""

from agent.checks.inputs import (
    Inputs,
    first_of,
    hca_label,
    missing_hcas,
    no_adapters,
    own_adapters,
    unknown_of,
    virtual_machine,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.pci import PciFunction
from agent.model.snapshot import Snapshot

LARGEST_REQUEST = 4096
"""Bytes; NVIDIA's guides to tuning ConnectX ask for it (PCI Express device control, code 5)."""

_READ_AS_ROOT = "(read as root)"


def _ordered(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(subject=hca_label(hca), observed="relaxed ordering off", expected="on")
        for hca in own_adapters(snapshot)
        if hca.function is not None and hca.function.relaxed_ordering is False
    )


def _missing_order(snapshot: Snapshot) -> Inputs:
    silent = (
        hca.name
        for hca in own_adapters(snapshot)
        if (hca.function or PciFunction()).relaxed_ordering is None
    )
    return missing_hcas(snapshot) + unknown_of(f"relaxed ordering {_READ_AS_ROOT}", silent)


def _short(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=hca_label(hca),
            observed=f"{hca.function.max_read_request} bytes",
            expected=f"{LARGEST_REQUEST} bytes",
        )
        for hca in own_adapters(snapshot)
        if hca.function is not None
        and hca.function.max_read_request is not None
        and hca.function.max_read_request < LARGEST_REQUEST
    )


def _missing_size(snapshot: Snapshot) -> Inputs:
    silent = (
        hca.name
        for hca in own_adapters(snapshot)
        if (hca.function or PciFunction()).max_read_request is None
    )
    return missing_hcas(snapshot) + unknown_of(f"maximum read request {_READ_AS_ROOT}", silent)


RULES: tuple[Rule, ...] = (
    Rule(
        code="RDM-010",
        claim="every HCA may write with relaxed ordering",
        why="On AMD processors strictly ordered writes wait for each other, and a fast port does "
        "not fill.",
        area=Area.RDMA,
        suite=Suite.AUDIT,
        severity=Severity.INFO,
        needs=_missing_order,
        check=_ordered,
        skips=first_of(no_adapters, virtual_machine),
        remedy="switch PCIe relaxed ordering on in the firmware setup, or "
        "`setpci -s ADDRESS CAP_EXP+8.w=0010:0010` after each boot",
        reference="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
    ),
    Rule(
        code="RDM-011",
        claim="every HCA reads from memory in the largest requests",
        why="Small read requests leave gaps on the bus between memory and the HCA.",
        area=Area.RDMA,
        suite=Suite.AUDIT,
        severity=Severity.INFO,
        needs=_missing_size,
        check=_short,
        skips=first_of(no_adapters, virtual_machine),
        remedy="`setpci -s ADDRESS CAP_EXP+8.w=5000:7000` after each boot",
        reference="https://enterprise-support.nvidia.com/s/article/"
        "understanding-pcie-configuration-for-maximum-performance",
    ),
)
