"""A prepared tree names its version and its repository everywhere, and no other is tagged."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import nodetopo
from scripts.release import changelog
from scripts.release.check import main, problems
from scripts.release.tree import NAMING, PLACEHOLDER, VERSIONED, Release, read, stamp
from tests.deploy.kustomize import render
from tests.release.copied import DATE, RELEASE, ROOT, copied

TAG = f"v{RELEASE.version}"


def files(root: Path) -> list[Path]:
    """Return the files of a tree that people read or that are applied."""
    folders = [root / name for name in (".github", "agent", "deploy", "docs", "scripts")]
    found = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    found += [path for path in root.iterdir() if path.is_file()]
    return [path for path in found if "__pycache__" not in path.parts]


def naming(root: Path, word: str) -> set[str]:
    return {
        str(path.relative_to(root))
        for path in files(root)
        if word.encode() in path.read_bytes() and not path.is_relative_to(root / "scripts/release")
    }


def test_the_placeholder_stands_only_where_a_release_replaces_it() -> None:
    assert naming(ROOT, PLACEHOLDER) | naming(ROOT, "ghcr.io/OWNER") <= {*NAMING}


def test_every_file_with_the_version_is_known() -> None:
    version = re.compile(rf"(?<![\d.]){re.escape(nodetopo.__version__)}(?![\w.]*\d)")
    for name in VERSIONED:
        assert version.search((ROOT / name).read_text("utf-8")), name


def test_the_changelog_has_a_section_of_this_version_and_one_for_the_next() -> None:
    log = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert changelog.section(log, nodetopo.__version__)
    assert log.index(f"## {changelog.UNRELEASED}\n") < log.index(f"## {nodetopo.__version__} - ")


def test_a_tree_without_a_public_repository_says_so() -> None:
    assert read(ROOT) == Release(nodetopo.__version__, PLACEHOLDER)
    found = list(problems(ROOT, f"v{nodetopo.__version__}", "some/repository"))
    assert f"pyproject.toml still says {PLACEHOLDER}" in found
    assert "deploy/daemonset/base/kustomization.yaml says newName: nodetopo" in "\n".join(found)


def test_a_prepared_tree_has_no_problem(tree: Path) -> None:
    assert list(problems(tree, TAG, RELEASE.repository)) == []
    assert read(tree) == RELEASE


def test_nothing_in_it_names_the_placeholder_or_the_version_before(tree: Path) -> None:
    assert naming(tree, PLACEHOLDER) | naming(tree, "OWNER/charts") == set()
    version = re.compile(rf"(?<![\d.]){re.escape(nodetopo.__version__)}(?![\w.]*\d)")
    assert [name for name in VERSIONED if version.search((tree / name).read_text("utf-8"))] == []


@pytest.mark.parametrize(
    ("tag", "repository", "said"),
    [
        ("1.2.3", "Some-Org/NodeTopo", "does not begin with v"),
        ("v1.2.4", "Some-Org/NodeTopo", "says 1.2.3, not 1.2.4"),
        ("v1.2.3", "other/nodetopo", "not other/nodetopo"),
        ("v1.2.3", PLACEHOLDER, "is no repository"),
        ("v1.2", "Some-Org/NodeTopo", "no version such as"),
    ],
)
def test_another_tag_is_refused(tree: Path, tag: str, repository: str, said: str) -> None:
    assert said in "\n".join(problems(tree, tag, repository))


def test_a_tree_that_was_changed_after_it_was_prepared_is_refused(tmp_path: Path) -> None:
    root = copied(tmp_path / "tree")
    stamp(root, RELEASE)
    base = root / "deploy/daemonset/base/kustomization.yaml"
    base.write_text(base.read_text("utf-8").replace("1.2.3", "1.2.2"), "utf-8")
    found = list(problems(root, TAG, RELEASE.repository))
    assert [line for line in found if "newTag" in line]
    assert f"CHANGELOG.md has no section {RELEASE.version}" in found


def test_the_check_hands_on_what_later_jobs_need(
    tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "output"
    monkeypatch.setenv("GITHUB_OUTPUT", str(output))
    monkeypatch.setenv("GITHUB_REPOSITORY", RELEASE.repository)
    monkeypatch.setattr("scripts.release.check.ROOT", tree)
    assert main([TAG]) == 0
    assert output.read_text().splitlines() == ["version=1.2.3", "charts=ghcr.io/some-org/charts"]
    assert main(["v9.9.9"]) == 1


def test_the_manifests_name_the_image_and_the_runbook(tree: Path) -> None:
    deploy = tree / "deploy" / "daemonset"
    (daemonset,) = (one for one in render(deploy) if one["kind"] == "DaemonSet")
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "ghcr.io/some-org/nodetopo:1.2.3"
    (rules,) = (
        one
        for one in render(deploy / "base", deploy / "components" / "alerts")
        if one["kind"] == "PrometheusRule"
    )
    links = re.findall(r'"runbook_url": "([^"]+)"', json.dumps(rules))
    prefix = "https://github.com/Some-Org/NodeTopo/blob/v1.2.3/docs/operate/runbook.md#"
    assert links
    assert [link for link in links if not link.startswith(prefix)] == []


def test_the_charts_values_name_the_image_and_the_runbook(tree: Path) -> None:
    values = yaml.safe_load((tree / "deploy/helm/values.yaml").read_text("utf-8"))
    assert values["image"]["repository"] == "ghcr.io/some-org/nodetopo"
    prefix = values["metrics"]["rules"]["runbookPrefix"]
    assert prefix == "https://github.com/Some-Org/NodeTopo/blob/v1.2.3/"
    chart = yaml.safe_load((tree / "deploy/helm/Chart.yaml").read_text("utf-8"))
    assert (chart["version"], chart["appVersion"]) == ("1.2.3", "1.2.3")
    assert chart["home"] == "https://github.com/Some-Org/NodeTopo"
    image = yaml.safe_load(chart["annotations"]["artifacthub.io/images"])[0]["image"]
    assert image == "ghcr.io/some-org/nodetopo:1.2.3"


def test_its_generated_files_are_as_their_generators_make_them(tree: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.generators", "--check", "chart", "alerts", "distributions"],
        cwd=tree,
        env={"PYTHONPATH": f"{tree / 'agent'}:{tree}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_its_changelog_has_the_release_and_room_for_the_next(tree: Path) -> None:
    log = (tree / "CHANGELOG.md").read_text("utf-8")
    assert changelog.section(log, "Unreleased") == ""
    assert "A thing that only the tests add." in (changelog.section(log, "1.2.3") or "")
    assert f"## 1.2.3 - {DATE}\n" in log


def test_the_next_release_is_prepared_from_the_last(tree: Path, tmp_path: Path) -> None:
    root = tmp_path / "next"
    subprocess.run(["cp", "-r", tree, root], check=True)
    later = Release("1.3.0", RELEASE.repository)
    stamp(root, later)
    assert [
        line for line in problems(root, "v1.3.0", later.repository) if "CHANGELOG" not in line
    ] == []
    assert naming(root, "1.2.3") == {"CHANGELOG.md", *(naming(root, "1.2.3") - {*NAMING})}
