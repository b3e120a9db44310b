"""The layers and doors that pyproject.toml declares hold in the code."""

import subprocess
import sys
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]


def circle(imports: Mapping[str, set[str]]) -> list[str]:
    """Return the modules of the first import circle, from the first back to itself."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        modules: list[str] = error.args[1]
        return modules
    return []


def test_every_import_contract_is_kept() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_modules_import_each_other() -> None:
    graph = grimp.build_graph("nodetopo", cache_dir=None)
    assert (
        circle({name: graph.find_modules_directly_imported_by(name) for name in graph.modules})
        == []
    )


def test_no_package_imports_its_modules() -> None:
    """Importing a module runs its package first, so an import there closes a circle."""
    graph = grimp.build_graph("nodetopo", cache_dir=None)
    importers = {
        name: below
        for name in graph.modules
        if (below := graph.find_children(name) & graph.find_modules_directly_imported_by(name))
    }
    assert importers == {}


@pytest.mark.parametrize(
    ("imports", "modules"),
    [
        ({"a": {"b"}, "b": {"c"}}, []),
        ({"a": {"b"}, "b": {"a"}}, ["a", "b", "a"]),
    ],
)
def test_a_circle_is_seen(imports: Mapping[str, set[str]], modules: list[str]) -> None:
    assert sorted(circle(imports)) == sorted(modules)
