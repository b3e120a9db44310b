"""The dashboard for Grafana: its structure, as Grafana's own schema of dashboards has it."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodetopo.kernel.http.families import families

FAMILIES = [family for _, family in families()]

FILE = Path(__file__).parents[2] / "deploy" / "helm" / "files" / "dashboard.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
PANELS: list[dict[str, Any]] = [one for one in DASHBOARD["panels"] if one["type"] != "row"]
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
OURS = {f"process_{name}" for name in ("cpu_seconds_total", "resident_memory_bytes", "open_fds")}
COLUMNS = 24
"""Of Grafana's grid."""

UNITS = {"short", "none", "percentunit", "bytes", "s"}
BUILT_IN = {"__rate_interval"}


def queries() -> Iterator[tuple[str, str]]:
    """Yield the title of each panel with each of its queries."""
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def test_it_keeps_its_address_and_names_no_server() -> None:
    assert (DASHBOARD["uid"], DASHBOARD["id"]) == ("nodetopo-gpus", None)
    assert DASHBOARD["schemaVersion"] >= 36
    text = FILE.read_text("utf-8")
    assert "__inputs" not in text
    assert not re.search(r"https?://", text)


def test_variables_choose_the_source_and_the_nodes() -> None:
    variables = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "cluster", "node", "resource"]
    assert variables["datasource"]["type"] == "datasource"
    for name in ("cluster", "node", "resource"):
        # `All` also takes series without the label, as in a single cluster.
        assert (variables[name]["allValue"], variables[name]["includeAll"]) == (".*", True)
        assert variables[name]["datasource"] == DATASOURCE


def test_every_panel_says_what_it_shows() -> None:
    for panel in PANELS:
        title = panel["title"]
        assert panel["description"].endswith("."), title
        assert panel["datasource"] == DATASOURCE, title
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, title
        steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        first, *others = (step["value"] for step in steps)
        assert first is None, title
        assert others == sorted(others), title
    titles = [panel["title"] for panel in DASHBOARD["panels"]]
    assert len(set(titles)) == len(titles)


def test_panels_fill_the_grid_without_overlapping() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS
        for cell in itertools.product(
            range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        ):
            assert taken.setdefault(cell, panel["title"]) == panel["title"]
    assert len(taken) % COLUMNS == 0  # no row has a gap
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_targets_are_named_apart_and_use_known_variables() -> None:
    known = {one["name"] for one in DASHBOARD["templating"]["list"]} | BUILT_IN
    for panel in PANELS:
        names = [target["refId"] for target in panel["targets"]]
        assert len(set(names)) == len(names)
        for target in panel["targets"]:
            assert target["datasource"] == DATASOURCE
            assert target["range"] is not target.get("instant", False)
            assert set(re.findall(r"\$\{?(\w+)", target["expr"])) <= known


@pytest.mark.parametrize(("title", "query"), tuple(queries()))
def test_a_query_asks_for_metrics_that_there_are_and_for_the_nodes_chosen(
    title: str, query: str
) -> None:
    by_name = {family.full_name: family for family in FAMILIES}
    named = set(re.findall(r"\b(?:nodetopo|process)_[a-z_]+", query))
    assert named <= by_name.keys() | OURS, title
    assert 'node=~"$node"' in query
    assert 'cluster=~"$cluster"' in query
    labels = {label for name in named & by_name.keys() for label in by_name[name].labels}
    legend = re.findall(r"\b(?:by|on) \(([^)]*)\)", query)
    used = {label.strip() for group in legend for label in group.split(",")}
    assert used <= labels | {"cluster", "job", "instance", "node"}, title
