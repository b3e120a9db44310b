"""The picture of a trace."""

import xml.etree.ElementTree as ET
from errno import ENOSPC
from importlib import util
from pathlib import Path
from typing import NoReturn

import pytest

from tests.cli.conftest import Cli

TRACE = ("--machine", "dgx-1v", "--jobs", "60", "--seeds", "2", "--policy")
SVG = "{http://www.w3.org/2000/svg}"


def _words(picture: Path) -> str:
    return " ".join("".join(element.itertext()) for element in ET.parse(picture).iter(f"{SVG}text"))


def test_an_svg_names_the_machine_the_jobs_the_panels_and_every_policy(
    cli: Cli, tmp_path: Path
) -> None:
    picture = tmp_path / "bars.svg"
    outcome = cli(*TRACE, "best,hami,random", "--plot", str(picture))
    assert (outcome.code, outcome.err) == (0, "")
    words = _words(picture)
    for wanted in (
        "dgx-1v: 8 GPUs, bandwidth by the ring model",
        "philly: 60 jobs for each of 2 seeds",
        "Bandwidth reached",
        "Split over NUMA nodes",
        "Rejected",
        "best",
        "hami",
        "random",
    ):
        assert wanted in words


def test_the_bars_carry_the_figures_of_the_table(cli: Cli, tmp_path: Path) -> None:
    picture = tmp_path / "bars.svg"
    short = cli(*TRACE, "best,hami", "-o", "short", "--plot", str(picture)).out
    words = _words(picture)
    figures = [word for word in short.split() if word.replace(".", "").isdigit()]
    assert len(figures) == 6
    assert [figure for figure in figures if f"{figure} %" not in words] == []


@pytest.mark.parametrize("kind", ["svg", "PNG"])
def test_the_same_run_draws_the_same_file(cli: Cli, tmp_path: Path, kind: str) -> None:
    first, second = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    for picture in (first, second):
        assert cli(*TRACE, "best", "--plot", str(picture)).code == 0
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith(b"\x89PNG" if kind == "PNG" else b"<?xml")
    assert [path.name for path in sorted(tmp_path.iterdir())] == [first.name, second.name]


def test_a_figure_that_is_not_known_is_not_drawn_as_nothing(cli: Cli, tmp_path: Path) -> None:
    picture = tmp_path / "bars.svg"
    cli(*TRACE, "best", "--trace", "-", "--plot", str(picture), stdin="duration_s,gpus\n60,1\n")
    assert _words(picture).count("not measured") == 3


def test_a_name_may_hold_what_means_a_formula_elsewhere(cli: Cli, tmp_path: Path) -> None:
    trace = tmp_path / "$x^$_.csv"
    trace.write_text("duration_s,gpus\n60,2\n", encoding="utf-8")
    picture = tmp_path / "bars.svg"
    assert cli(*TRACE, "best", "--trace", str(trace), "--plot", str(picture)).code == 0
    assert "$x^$_.csv" in _words(picture)


def test_without_matplotlib_the_cure_is_named_before_any_work(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = util.find_spec

    def without(name: str, package: str | None = None) -> object:
        return None if name == "matplotlib" else found(name, package)

    monkeypatch.setattr("tests.bench.traces.plot.find_spec", without)
    outcome = cli(*TRACE, "best", "--plot", str(tmp_path / "bars.png"))
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "error: plots need matplotlib — pip install matplotlib\n"


def _never(*_: object) -> NoReturn:
    raise AssertionError("simulated before the place of the plot was looked at")


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("none/bars.svg", "none does not exist"),
        ("file/bars.svg", "file is not a directory"),
        ("folder.svg", "it is a directory"),
        ("closed/bars.svg", "no permission to write in"),
    ],
)
def test_a_place_that_cannot_be_written_is_an_error_before_any_work(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, problem: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder.svg").mkdir()
    (tmp_path / "closed").mkdir()
    monkeypatch.setattr("tests.bench.traces.__main__._simulate", _never)
    # The tests may run as root, whom no mode keeps out.
    monkeypatch.setattr(
        "tests.bench.traces.plot.os.access", lambda path, _mode: Path(path).name != "closed"
    )
    outcome = cli(*TRACE, "best", "--plot", str(tmp_path / place))
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"error: cannot write {tmp_path / place}: ")
    assert problem in outcome.err


def test_a_name_that_no_file_can_have_is_an_error_before_any_work(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.bench.traces.__main__._simulate", _never)
    outcome = cli(*TRACE, "best", "--plot", str(tmp_path / ("x" * 300) / "bars.svg"))
    assert (outcome.code, outcome.out) == (2, "")
    assert "cannot write" in outcome.err


def test_a_plot_that_fails_after_all_does_not_lose_the_table(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> NoReturn:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr("tests.bench.traces.plot.replace_file", full)
    outcome = cli(*TRACE, "best", "-o", "short", "--plot", str(tmp_path / "bars.svg"))
    assert (outcome.code, outcome.out.split()[0]) == (2, "best")
    assert "No space left on device" in outcome.err
