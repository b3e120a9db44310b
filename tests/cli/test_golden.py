"""What every reader prints for every bundled machine, as reviewed text."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Cli
from tests.cli.outcome import MACHINES, READERS, slug

GOLDEN = Path(__file__).parent / "golden"
Written = Callable[[str], Path]

every_reader = pytest.mark.parametrize("command", READERS, ids=map(slug, READERS))
every_machine = pytest.mark.parametrize("name", MACHINES)


@every_reader
@every_machine
def test_a_bundled_machine_prints_what_was_reviewed(
    cli: Cli,
    name: str,
    command: tuple[str, ...],
    *,
    update_golden: bool,
) -> None:
    transcript = _transcript(cli, command, "--machine", name)
    _compare(GOLDEN / name / f"{slug(command)}.txt", transcript, update=update_golden)


@every_reader
@every_machine
def test_a_matrix_text_prints_what_was_reviewed(
    cli: Cli,
    topo_m_file: Written,
    name: str,
    command: tuple[str, ...],
    *,
    update_golden: bool,
) -> None:
    path = topo_m_file(name)
    transcript = _transcript(cli, command, "--topo-m", str(path)).replace(str(path), path.name)
    _compare(GOLDEN / f"{name}-topo-m" / f"{slug(command)}.txt", transcript, update=update_golden)


@every_reader
@every_machine
def test_a_snapshot_of_a_machine_prints_what_the_machine_does(
    cli: Cli,
    snapshot_file: Written,
    name: str,
    command: tuple[str, ...],
) -> None:
    path = snapshot_file(name)
    expected = [cli(*command, "--machine", name, "-o", form) for form in ("table", "json")]
    found = [cli(*command, "--snapshot", str(path), "-o", form) for form in ("table", "json")]
    assert found == expected


@every_reader
def test_yaml_and_json_say_the_same(cli: Cli, command: tuple[str, ...]) -> None:
    as_json = cli(*command, "--machine", "dgx-1v", "-o", "json")
    as_yaml = cli(*command, "--machine", "dgx-1v", "-o", "yaml")
    assert yaml.safe_load(as_yaml.out) == json.loads(as_json.out)


@every_reader
def test_all_formats_have_the_same_exit_status(cli: Cli, command: tuple[str, ...]) -> None:
    formats = ("table", "short", "json", "yaml")
    codes = {cli(*command, "--machine", "dgx-1v", "-o", form).code for form in formats}
    assert len(codes) == 1


def _transcript(cli: Cli, command: tuple[str, ...], *source: str) -> str:
    parts = []
    for form in ((), ("-o", "short")):
        outcome = cli(*command, *source, *form)
        line = " ".join(("nodetopo", *command, *source, *form))
        parts.append(f"$ {line}\n{outcome.out}{outcome.err}exit {outcome.code}\n")
    return "\n".join(parts)


def _compare(path: Path, text: str, *, update: bool) -> None:
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
