"""Every generated file is as its generator makes it, and ``scripts/generate`` says what is not."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from scripts.generators import registry
from scripts.generators.__main__ import main
from scripts.generators.registry import GENERATORS, LAB, ROOT, changes, hint

BY_MACHINE = ("compose", "snapshots", "outputs")
"""Those whose files tests/machines and tests/cli/test_golden.py compare, machine by machine."""


@pytest.mark.parametrize("name", [name for name in GENERATORS if name not in BY_MACHINE])
def test_the_stored_files_are_the_generated_ones(name: str) -> None:
    assert [str(change) for change in changes(name)] == [], hint(name)


def test_every_module_with_files_is_a_generator() -> None:
    modules = {path.stem.replace("_", "-") for path in Path(registry.__file__).parent.glob("*.py")}
    assert modules - {"--init--", "--main--", "registry"} == {*GENERATORS, *LAB}


def test_every_page_that_says_so_is_generated() -> None:
    owned = {path for name in GENERATORS for path in _module(name).owned()}
    pages = [
        path for path in (ROOT / "docs").rglob("*.md") if "enerated from" in path.read_text("utf-8")
    ]
    assert len(pages) > 6
    assert [path for path in pages if path not in owned] == []


def test_no_file_has_two_generators() -> None:
    owners: dict[Path, set[str]] = {}
    for name in (*GENERATORS, *LAB):
        for path in _module(name).owned():
            owners.setdefault(path, set()).add(name)
    assert {path: names for path, names in owners.items() if len(names) > 1} == {}


def _module(name: str) -> ModuleType:
    return import_module(f"scripts.generators.{name.replace('-', '_')}")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a tree with a generator ``three``: a file is right, one wrong, one left over."""
    for name in ("right", "wrong", "left-over"):
        (tmp_path / name).write_text("right", "utf-8")
    texts = {
        tmp_path / "right": "right",
        tmp_path / "wrong": "new",
        tmp_path / "folder/more": "more",
    }
    generator = SimpleNamespace(
        made=lambda: texts, owned=lambda: filter(Path.is_file, tmp_path.rglob("*"))
    )
    monkeypatch.setitem(sys.modules, "scripts.generators.three", generator)
    monkeypatch.setattr("scripts.generators.__main__.GENERATORS", ("three",))
    monkeypatch.setattr(registry, "ROOT", tmp_path)
    return tmp_path


STALE = "three: change wrong\nthree: add folder/more\nthree: remove left-over\n"


def test_a_table_gets_new_rows_and_the_text_around_it_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\nText | of a page.\n", "utf-8")
    made = registry.with_rows(page, {"| a | b |": ["| 3 | 4 |\n", "| 5 | 6 |\n"]})
    assert made == ("# A\n\n| a | b |\n| --- | --- |\n| 3 | 4 |\n| 5 | 6 |\n\nText | of a page.\n")
    with pytest.raises(ValueError, match=r"page\.md has 0 tables with the head \| a \|"):
        registry.with_rows(page, {"| a |": []})


def test_a_check_lists_what_is_stale_and_changes_nothing(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--check"]) == 1
    assert capsys.readouterr().out == f"{STALE}3 stale files\n"
    assert sorted(path.name for path in tree.iterdir()) == ["left-over", "right", "wrong"]
    assert (tree / "wrong").read_text("utf-8") == "right"


def test_a_run_changes_what_is_stale_and_a_second_one_nothing(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["three"]) == 0
    assert capsys.readouterr().out == f"{STALE}3 files changed\n"
    assert (tree / "wrong").read_text("utf-8") == "new"
    assert (tree / "folder/more").read_text("utf-8") == "more"
    assert not (tree / "left-over").exists()
    assert main([]) == 0
    assert capsys.readouterr().out == "0 files changed\n"


def test_an_unknown_generator_is_answered_with_the_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["label"])
    assert stop.value.code == 2
    assert "unknown generator label; try protos, compose, snapshots" in capsys.readouterr().err
