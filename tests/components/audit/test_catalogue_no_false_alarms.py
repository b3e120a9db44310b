"""Well-run machines raise no alarm about their hardware, whatever kind of machine they are."""

import pytest

from nodetopo.checks.engine import evaluate
from nodetopo.checks.rule import Area, Verdict
from nodetopo.components.audit.catalogue import RULES
from tests.components.audit.judge import healthy

HARDWARE = (Area.GPU, Area.NVLINK, Area.PCIE, Area.NUMA, Area.RDMA, Area.GPUDIRECT)


@pytest.mark.parametrize(
    ("name", "alarms"),
    [
        ("dgx-1v", ()),
        ("dgx-2", ()),
        ("dgx-a100", ()),
        ("dgx-h100", ()),
        ("gb200-nvl72", ()),
        ("h100-vm-8", ()),
        ("h200-nvl-4", ()),
        ("hgx-a100-4", ("RDM-002",)),  # two HCAs for four NUMA nodes
        ("hgx-b200", ()),
        ("hgx-h200", ()),
        ("l40s-pcie-4", ("PCI-006",)),  # its IOMMU is on
        ("rtxpro6000-pcie-8", ()),
    ],
)
def test_a_well_run_machine_raises_no_alarm(name: str, alarms: tuple[str, ...]) -> None:
    results = evaluate(healthy(name), (rule for rule in RULES if rule.area in HARDWARE)).results
    quiet = (Verdict.PASS, Verdict.UNKNOWN)
    assert tuple(it.rule.code for it in results if it.verdict not in quiet) == alarms


@pytest.mark.parametrize(
    "name",
    [
        "dgx-1v",
        "dgx-a100",
        "dgx-h100",
        "gb200-nvl72",
        "h100-vm-8",
        "hgx-b200",
        "hgx-h200",
        "l40s-pcie-4",
    ],
)
def test_what_these_machines_tell_answers_every_question(name: str) -> None:
    results = evaluate(healthy(name), (rule for rule in RULES if rule.area in HARDWARE)).results
    assert [it.rule.code for it in results if it.verdict is Verdict.UNKNOWN] == []
