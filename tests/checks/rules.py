"""Rules that yield what a test says."""

from nodetopo.checks.rule import Finding, Missing, Rule, Severity, Skip


def yielding(*parts: Finding | Missing | Skip, severity: Severity = Severity.ERROR) -> Rule:
    """Return a rule that yields *parts* on every node."""
    return Rule(
        code="GPU-001",
        claim="all is well",
        why="it matters",
        severity=severity,
        judge=lambda _: iter(parts),
        remedy="repair it",
        reference="https://example.org/",
    )
