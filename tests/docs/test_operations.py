"""What the pages of docs/operate say of reasons and components is what there is."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from nodetopo.tools.explain.catalogue import entries
from nodetopo.tools.explain.entry import Kind

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "operate"
REASON = re.compile(r"((?:[A-Z][a-z]+){2,})(?::.*)?")
"""Alone, or as the beginning of a line of /readyz."""
SPEAKERS = (
    "agent/nodetopo/components/gpus/health/clearing.py",
    "agent/nodetopo/components/gpus/health/notices.py",
    "agent/nodetopo/components/rdma/health/notices.py",
    "agent/nodetopo/components/gpus/health/trouble.py",
    "agent/nodetopo/components/gpus/health/monitor.py",
    "agent/nodetopo/components/dra/notices.py",
    "agent/nodetopo/components/gpus/driver_pause.py",
    "agent/nodetopo/components/audit/alignment/loop.py",
    "agent/nodetopo/components/gpus/offer_notices.py",
    "agent/nodetopo/components/gpus/own_pods.py",
    "agent/nodetopo/components/gpus/told_pods.py",
    "agent/nodetopo/components/audit/rejections_loop.py",
    "agent/nodetopo/deviceplugin/state_file.py",
    "agent/nodetopo/kernel/settings/reload.py",
)
"""Where the reasons of Events are written."""


def first_cells(page: str, title: str) -> set[str]:
    """Return the words in the first column of the section's tables."""
    text = (DOCS / page).read_text("utf-8")
    section = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)
    return {word.strip(" `") for row in rows for word in row.split(",")}


def reasons_in(path: str) -> Iterator[str]:
    for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))):
        if isinstance(node, ast.Constant) and (found := REASON.fullmatch(str(node.value))):
            yield found[1]


def explained(kind: Kind) -> list[str]:
    return [entry.name for entry in entries() if entry.kind is kind]


def test_every_reason_of_an_event_is_explained() -> None:
    spoken = {reason for path in SPEAKERS for reason in reasons_in(path)}
    listed = explained(Kind.EVENT)
    assert len(listed) == len(set(listed))
    assert spoken == set(listed)


def test_every_reason_for_not_being_ready_is_explained() -> None:
    spoken = {
        reason
        for path in (ROOT / "agent/nodetopo/components").rglob("*.py")
        if path.name in ("readiness.py", "component.py")
        for reason in reasons_in(str(path))
    }
    listed = explained(Kind.READINESS)
    assert len(listed) == len(set(listed))
    assert spoken == set(listed)


def test_every_component_is_listed() -> None:
    components = {path.name for path in (ROOT / "deploy/daemonset/components").iterdir()}
    assert first_cells("install.md", "Components") - {"component", "---"} == components
