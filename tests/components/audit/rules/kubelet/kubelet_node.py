"""The healthy node with other kubelet settings, and the findings of a rule as plain pairs."""

from typing import Any

from msgspec.structs import replace

from nodetopo.checks.rule import Verdict
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import SETTINGS, healthy, result

FILE = "/var/lib/kubelet/config.yaml"


def node(**settings: Any) -> Snapshot:
    """Return the healthy node with *settings* changed, in force and on disk."""
    changed = replace(SETTINGS, **settings)
    return replace(healthy(), kubelet=changed, kubelet_on_disk=changed)


def observed(code: str, snapshot: Snapshot) -> list[str]:
    """Return what the rule *code* observes on *snapshot*."""
    return [finding.observed for finding in result(code, snapshot).findings]


def missing(code: str, snapshot: Snapshot) -> tuple[str, ...]:
    """Return what the rule *code* lacks on *snapshot*, which it must not pass without."""
    found = result(code, snapshot)
    assert found.verdict is Verdict.UNKNOWN
    return found.missing


def skipped(code: str, snapshot: Snapshot) -> str | None:
    """Return why the rule *code* says nothing about *snapshot*."""
    return result(code, snapshot).skipped
