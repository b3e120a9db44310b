"""What every reader prints for every machine of `tests/nodes`, as reviewed text."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from agent.model.codec import decode
from tests.cli.conftest import Cli
from tests.cli.outcome import MACHINES, READERS, slug, topo_m

Written = Callable[[str], Path]

every_reader = pytest.mark.parametrize("command", READERS, ids=map(slug, READERS))


@every_reader
def test_a_machine_prints_what_was_reviewed(
    cli: Cli,
    node_dir: Path,
    command: tuple[str, ...],
    *,
    update_golden: bool,
) -> None:
    transcript = _transcript(cli, command, "--snapshot", node_dir / "snapshot.json")
    _compare(node_dir / "golden" / f"{slug(command)}.txt", transcript, update=update_golden)


@every_reader
def test_a_machines_matrix_text_prints_what_was_reviewed(
    cli: Cli,
    node_dir: Path,
    tmp_path: Path,
    command: tuple[str, ...],
    *,
    update_golden: bool,
) -> None:
    snapshot = decode((node_dir / "snapshot.json").read_text("utf-8")).snapshot
    path = tmp_path / "topo-m.txt"
    path.write_text(topo_m(snapshot), "utf-8")
    transcript = _transcript(cli, command, "--topo-m", path)
    golden = node_dir / "golden" / "topo-m" / f"{slug(command)}.txt"
    _compare(golden, transcript, update=update_golden)


def test_a_machine_is_drawn_as_was_reviewed(
    cli: Cli,
    node_dir: Path,
    *,
    update_golden: bool,
) -> None:
    drawn = cli("topo", "tree", "--snapshot", str(node_dir / "snapshot.json"), "-o", "svg")
    assert (drawn.code, drawn.err) == (0, "")
    _compare(node_dir / "golden" / "topo.svg", drawn.out, update=update_golden)


@pytest.mark.parametrize(
    ("name", "command"),
    [*((name, READERS[0]) for name in MACHINES), *(("dgx-1v", command) for command in READERS[1:])],
)
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


def _transcript(cli: Cli, command: tuple[str, ...], flag: str, path: Path) -> str:
    parts = []
    for form in ((), ("-o", "short")):
        outcome = cli(*command, flag, str(path), *form)
        line = " ".join(("nodetopo", *command, flag, path.name, *form))
        printed = f"{outcome.out}{outcome.err}".replace(str(path), path.name)
        parts.append(f"$ {line}\n{printed}exit {outcome.code}\n")
    return "\n".join(parts)


def _compare(path: Path, text: str, *, update: bool) -> None:
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
