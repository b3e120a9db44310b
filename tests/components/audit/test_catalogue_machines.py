"""What the checks say of every composed machine: nothing that it was not composed to show.

Each is an idle node of which all is known, so that a finding or an unknown beyond these tables is a
false alarm of a rule, or a machine that lacks a file. Remarks are not looked at.
"""

import pytest

from nodetopo.checks.engine import evaluate
from nodetopo.checks.rule import Verdict
from nodetopo.components.audit.catalogue import RULES
from tests.compose.machine import Machine
from tests.compose.machines import machines

AS_INSTALLED = {"KUB-001", "KUB-003", "KUB-004", "KUB-025", "RUN-008"}
"""A kubelet with its defaults on several NUMA nodes, and a toolkit with its own."""

ONE_NODE = {"KUB-025", "RUN-008"}
"""The same, with one NUMA node to use."""

FINDINGS: dict[str, set[str]] = {
    "a100x4-nv4-4numa-2cx": AS_INSTALLED | {"RDM-002"},  # two HCAs for four NUMA nodes
    "a100x6-pcie-bridged-crosssocket": AS_INSTALLED | {"RDM-002"},  # HCAs on one socket only
    # More NUMA nodes than the Memory Manager can deal with.
    "gb200x4-nvl72-34numa-4cx7": AS_INSTALLED - {"KUB-004"},
    "gb300x2-station-1grace-datadirect": ONE_NODE,
    "h100x8-nvswitch-2numa-8cx7": set(),  # well run
    "h100x8-nvswitch-2numa-broken": AS_INSTALLED
    | {"GPU-001", "GPU-002", "GPU-004", "GPU-007", "NVL-001", "NVL-002", "NVL-004", "PCI-001"}
    | {"PCI-005", "NUM-001", "NUM-002", "RDM-001", "PLG-002"},
    "h100x8-nvswitch-2numa-mig": AS_INSTALLED | {"MIG-001", "MIG-002"},
    "h100x8-vm-2numa-8vf": AS_INSTALLED | {"KRN-003"},  # the kernel balances NUMA nodes
    "l40sx4-pcie-2numa": AS_INSTALLED | {"PCI-006", "KRN-003"},  # and its IOMMU translates
    "l4x1-1numa": ONE_NODE | {"KRN-007"},  # saves energy
    # No nvidia_peermem, and NUMA nodes with numbers that the Topology Manager cannot take.
    "v100x4-power9-sparse-6mlx5": AS_INSTALLED - {"KUB-003"} | {"GDR-001"},
    # Exclusive CPUs, and no more than that.
    "v100x8-cubemesh-2numa-4cx4": {"KUB-003", "KUB-004", "KUB-011", "KUB-025"},
    "v100x8-vm-phb-2numa": AS_INSTALLED | {"KRN-003", "NUM-001"},  # a VM without NUMA nodes of GPUs
}
UNKNOWN = {
    # A NUMA node that firmware hides, and a port that is down, which has no rate.
    "h100x8-nvswitch-2numa-broken": {"RDM-002", "KRN-010", "RDM-016"},
    "h100x8-nvswitch-2numa-mig": {"GPU-002", "GPU-003"},  # not told while MIG devices are there
    "v100x8-vm-phb-2numa": {"GPU-001"},  # a driver that is too old to say
}


@pytest.mark.parametrize("machine", machines(), ids=lambda machine: machine.shape)
def test_a_machine_has_the_findings_that_it_was_composed_for(machine: Machine) -> None:
    results = evaluate(machine.snapshot, RULES).results
    found = {it.rule.code for it in results if it.verdict in (Verdict.FAIL, Verdict.WARN)}
    unknown = {it.rule.code for it in results if it.verdict is Verdict.UNKNOWN}
    assert found == FINDINGS.get(machine.shape, AS_INSTALLED)
    assert unknown == UNKNOWN.get(machine.shape, set())
