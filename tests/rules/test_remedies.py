"""A remedy does what its rule asks for, makes no other rule worse, and brings about no bug."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.checks.engine import Result, evaluate
from nodetopo.checks.rule import Rule, Verdict
from nodetopo.components.audit.catalogue import RULES, rule
from nodetopo.model.snapshot import Snapshot
from tests.budget import IS_NIGHTLY
from tests.rules.bases import Bases
from tests.rules.machine import Machine

HERE = Path(__file__).parent
CODES = sorted(path.name for path in HERE.iterdir() if (path / "inputs").exists())
CURED = tuple(one for one in RULES if one.cure is not None)
RELEASES = (None, "", "v1.27.3", "v1.35.4", "v1.36.3", "v1.37.1")
"""``None`` leaves what the machine has, the empty version is not known."""

CURED_CODES = frozenset(one.code for one in CURED)

OUTSIDE: Mapping[str, str] = {
    "hardware, its firmware, or a reset of it": """
        GPU-001 GPU-002 GPU-003 GPU-004 GPU-005 GPU-007 MIG-002 NVL-001 NVL-002 NVL-003 NVL-005
        PCI-001 PCI-002 PCI-003 PCI-004 PCI-007 PCI-010 NUM-001 NUM-002 NUM-004 RDM-001 RDM-002
        RDM-003 RDM-004 RDM-005 RDM-006 RDM-010 RDM-011 RDM-014 RDM-015 RDM-016 GDR-005 PLG-002
    """,
    "the driver, its services and parameters": """
        GPU-006 NVL-004 NVL-006 NVL-007 NUM-003 GDR-001 GDR-002 GDR-003
    """,
    "how an administrator divides GPUs": "MIG-001 MIG-003 MIG-004",
    "the kernel: command line, modules, sysctls, interrupts, network": """
        PCI-005 PCI-006 PCI-008 PCI-009 GDR-004 KRN-001 KRN-002 KRN-003 KRN-004 KRN-005 KRN-006
        KRN-007 KRN-008 KRN-009 KRN-010 KRN-011 RDM-007 RDM-008 RDM-009 RDM-012 RDM-013 PLG-007
    """,
    "the container runtime and the toolkit": """
        RUN-001 RUN-002 RUN-003 RUN-004 RUN-005 RUN-006 RUN-007 RUN-008 RUN-009 RUN-010 RUN-011
        RUN-012
    """,
    "rights in the cluster": "KUB-027",
    "files of the kubelet that only a person can put right": "KUB-029 KUB-030 KUB-031",
    "other device plugins and drivers": """
        PLG-001 PLG-003 PLG-004 PLG-005 PLG-006 PLG-008 PLG-009 PLG-010 PLG-011 PLG-012
        PLG-013 ALN-006
    """,
    "the manifest of a pod": """
        MIG-005 KUB-028 QOS-001 QOS-002 QOS-003 QOS-004 POD-001 POD-002 POD-003 POD-004 POD-005
        POD-006 POD-007 POD-008 POD-009 POD-010 POD-011 POD-012 POD-013
    """,
    "a gate that is on by default": "QOS-005",
    "another placement of the pod": "ALN-001 ALN-002 ALN-005",
}
"""Why a remedy changes nothing that a snapshot has of the kubelet's settings."""

STAYS: Mapping[str, str] = {
    "ALN-003": "a pod keeps its place until it is created again",
    "ALN-004": "a pod keeps its place until it is created again",
}
"""Rules that find the same after their remedy, and why."""

STARTS = tuple(f"KUB-{number:03}" for number in (2, 9, 10, 16, 18, 19, 20, 22, 23))
"""Rules on what the kubelet needs to start and to align its first pod."""

_RANK = (Verdict.PASS, Verdict.UNKNOWN, Verdict.WARN, Verdict.FAIL)


def test_each_rule_has_a_remedy_for_the_snapshot_or_a_reason_why_not() -> None:
    outside = [code for codes in OUTSIDE.values() for code in codes.split()]
    assert sorted([one.code for one in CURED] + outside) == CODES


@pytest.mark.parametrize("one", CURED, ids=lambda one: one.code)
def test_the_remedy_of_a_rule_makes_its_failing_machine_pass(one: Rule, bases: Bases) -> None:
    snapshot = Machine(HERE / one.code / "fail", bases).snapshot()
    assert one.cure is not None
    found = evaluate(one.cure(snapshot), (one,)).results[0]
    assert bool(found.findings) == (one.code in STAYS)


@pytest.mark.parametrize("code", CODES)
def test_no_remedy_does_harm(code: str, bases: Bases) -> None:
    machine = Machine(HERE / code / "fail", bases).snapshot()
    # Other machines differ by hardware and pods, on which no release has an influence.
    releases = RELEASES if code in CURED_CODES or IS_NIGHTLY else RELEASES[:1]
    for version in releases:
        snapshot = machine if version is None else of_release(machine, version)
        # A restart brings the settings on disk into force, whatever it is for.
        restarted = rule("KUB-024").cure
        assert restarted is not None
        snapshot = restarted(snapshot)
        before = {one.rule.code: one for one in evaluate(snapshot, RULES).results}
        for one in CURED:
            if before[one.code].findings and one.cure is not None:
                compare(before, one.cure(snapshot), one.code)


def of_release(snapshot: Snapshot, version: str) -> Snapshot:
    settings = (snapshot.kubelet, snapshot.kubelet_on_disk)
    kubelet, on_disk = (one and replace(one, version=version or None) for one in settings)
    status = snapshot.node_status and replace(snapshot.node_status, kubelet_version=version or None)
    return replace(snapshot, kubelet=kubelet, kubelet_on_disk=on_disk, node_status=status)


def is_worse(before: Result, after: Result) -> bool:
    """Return whether a verdict got worse; a rule that applies only now may ask for more."""
    if before.skipped is not None:
        return after.verdict is Verdict.FAIL and after.rule.code in STARTS
    if set(after.missing) == {"version of the kubelet"}:
        return False
    return _RANK.index(after.verdict) > _RANK.index(before.verdict)


def compare(before: Mapping[str, Result], cured: Snapshot, code: str) -> None:
    """Compare the results *before* with those on the node that the remedy of *code* leads to."""
    after = {one.rule.code: one for one in evaluate(cured, RULES).results}
    worse = [
        (one, after[one].findings, after[one].missing)
        for one in after
        if one != "KUB-021" and is_worse(before[one], after[one])
    ]
    assert worse == [], code
    if code not in STAYS:
        assert after[code].findings == (), code
    known = {finding.observed.partition(" (")[0] for finding in before["KUB-021"].findings}
    for finding in after["KUB-021"].findings:
        effect = finding.observed.partition(" (")[0]
        assert effect in known or effect in before[code].remedy, code
