"""Metrics of measured alignment and of rejected pods."""

from nodetopo.components.audit.metrics import FAMILIES, AuditReading
from nodetopo.kernel.http.family import Section

STATE = AuditReading(
    pods_measured={"aligned": 3, "misaligned": 2, "unknown": 0},
    pods_misaligned={"QOS-001": 2},
    pod_errors=4,
    rejections_explained=5,
    rejections_given_up=1,
)


def samples(state: AuditReading) -> dict[str, dict[tuple[str, ...], float]]:
    return {
        family.full_name: dict(family.samples(state))
        for family in FAMILIES
        if family.section is Section.PODS
    }


def test_pods_are_told_by_verdict_and_the_misaligned_by_reason() -> None:
    assert samples(STATE) == {
        "nodetopo_pods_measured": {("aligned",): 3, ("misaligned",): 2, ("unknown",): 0},
        "nodetopo_pods_misaligned": {("QOS-001",): 2},
        "nodetopo_pod_measurement_errors_total": {(): 4},
        "nodetopo_rejections_total": {("explained",): 5, ("given-up",): 1},
    }


def test_what_was_not_measured_has_no_samples() -> None:
    found = samples(AuditReading())
    assert (found["nodetopo_pods_measured"], found["nodetopo_pods_misaligned"]) == ({}, {})
