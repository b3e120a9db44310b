"""The forms and files by which GitHub and Artifact Hub present the project."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodetopo.cli.main import COMMANDS
from scripts.release.tree import PLACEHOLDER

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
FORMS = sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml"))
PAGES = [
    *(ROOT / name for name in ("CODE_OF_CONDUCT.md", "GOVERNANCE.md", "SECURITY.md")),
    GITHUB / "PULL_REQUEST_TEMPLATE.md",
]
PROPERTIES = {
    "markdown": {"value"},
    "checkboxes": {"label", "description", "options"},
    "input": {"label", "description", "placeholder", "value"},
    "textarea": {"label", "description", "placeholder", "value", "render"},
}
"""Of each kind of element (GitHub docs, "Syntax for GitHub's form schema")."""


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return found


@pytest.mark.parametrize(
    "path", [form for form in FORMS if form.name != "config.yml"], ids=lambda path: path.stem
)
def test_a_form_is_one_that_github_accepts(path: Path) -> None:
    form = read(path)
    assert (
        {"name", "description", "body"} <= form.keys() <= {"name", "description", "labels", "body"}
    )
    ids = [one["id"] for one in form["body"] if one["type"] != "markdown"]
    assert len(set(ids)) == len(ids)
    for one in form["body"]:
        assert one.keys() <= {"type", "id", "attributes", "validations"}
        assert one["attributes"].keys() <= PROPERTIES[one["type"]]
        assert one["type"] == "markdown" or one["attributes"]["label"]


@pytest.mark.parametrize("path", [*FORMS, *PAGES], ids=lambda path: path.name)
def test_a_form_names_commands_and_files_that_exist(path: Path) -> None:
    text = path.read_text("utf-8")
    known = {command.name for command in COMMANDS}
    assert set(re.findall(r"`nodetopo (\w[\w-]*)", text)) <= known
    for name in re.findall(r"\b(?:docs|scripts)/[\w/.-]*\w", text):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert (path.parent / name).exists(), name


def test_new_versions_are_proposed_for_every_kind_of_pin() -> None:
    plan = read(GITHUB / "dependabot.yml")
    found = {one["package-ecosystem"] for one in plan["updates"]}
    assert found == {"github-actions", "docker", "pip"}
    assert all((ROOT / one["directory"].lstrip("/")).is_dir() for one in plan["updates"])


def test_the_owners_are_those_of_the_repository() -> None:
    (line,) = (
        line
        for line in (GITHUB / "CODEOWNERS").read_text("utf-8").splitlines()
        if not line.startswith("#")
    )
    assert line == f"* @{PLACEHOLDER.split('/')[0]}/nodetopo-maintainers"


def test_the_chart_says_where_it_is_from() -> None:
    chart = read(ROOT / "deploy/helm/Chart.yaml")
    url = f"https://github.com/{PLACEHOLDER}"
    assert (chart["home"], chart["sources"]) == (url, [url])
    assert chart["maintainers"]
    icon = re.fullmatch(
        rf"https://raw\.githubusercontent\.com/{PLACEHOLDER}/v\S+?/(\S+)", chart["icon"]
    )
    assert icon
    assert ET.parse(ROOT / icon[1]).getroot().tag.endswith("}svg")
    for name in ("images", "links", "changes"):
        assert yaml.safe_load(chart["annotations"][f"artifacthub.io/{name}"])
    kinds = {"added", "changed", "deprecated", "removed", "fixed", "security"}
    changes = yaml.safe_load(chart["annotations"]["artifacthub.io/changes"])
    assert {one["kind"] for one in changes} <= kinds
    assert read(ROOT / "artifacthub-repo.yml")["owners"]
