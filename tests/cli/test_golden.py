"""What every reader prints for every machine of `tests/nodes`, as reviewed text."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import yaml

from nodetopo.checks.rule import Suite
from nodetopo.model.codec import decode
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.node_rules import node_rules
from scripts.generators.outputs import FLAGS, drawing, machines, of_machine, owned
from scripts.generators.registry import hint
from tests.cli import tables
from tests.cli.conftest import Cli
from tests.cli.outcome import MACHINES, READERS, slug
from tests.conftest import NODES

Written = Callable[[str], Path]

every_reader = pytest.mark.parametrize("command", READERS, ids=map(slug, READERS))
both_inputs = pytest.mark.parametrize("flag", FLAGS)
NAMES = machines()


@cache
def stored(table: str) -> tables.Table:
    """Return the stored table."""
    return tables.read((tables.GOLDENS / f"{table}.txt").read_text("utf-8"), NAMES)


@both_inputs
@every_reader
def test_a_machine_prints_what_was_reviewed(
    node_dir: Path, command: tuple[str, ...], flag: str
) -> None:
    found = of_machine(node_dir.name, flag, command)
    if command in tables.TABLED:
        expected = _from_table(node_dir, command, flag, found.partition("\n")[0][2:])
    else:
        golden = node_dir / "golden" / FLAGS[flag] / f"{slug(command)}.txt"
        expected = golden.read_text("utf-8")
    assert found == expected, hint("outputs")


def _from_table(node_dir: Path, command: tuple[str, ...], flag: str, line: str) -> str:
    source = tables.source(node_dir.name, flag)
    outcomes = {
        key: by_source[source]
        for key, by_source in stored(tables.TABLED[command]).items()
        if by_source[source] != tables.ABSENT
    }
    if command == ("labels",):
        return tables.labels_transcript(outcomes, line)
    rules = {tables.key(rule.code) for rule in node_rules(Suite(command[0]))}
    snapshot = decode((node_dir / "snapshot.json").read_text("utf-8")).snapshot
    if flag == "--topo-m":
        snapshot = Snapshot()
    ours = {key: outcome for key, outcome in outcomes.items() if key in rules}
    return tables.checks_transcript(ours, line, snapshot)


@pytest.mark.parametrize("table", sorted(set(tables.TABLED.values())))
def test_a_table_has_one_form(table: str) -> None:
    text = (tables.GOLDENS / f"{table}.txt").read_text("utf-8")
    assert tables.written(tables.read(text, NAMES)) == text, hint("outputs")


def test_every_rule_and_nothing_else_has_a_block() -> None:
    assert [*stored("checks")] == [tables.key(rule.code) for rule in node_rules()], hint("outputs")


def test_no_golden_is_left_over() -> None:
    listed = {f"{slug(command)}.txt" for command in READERS if command not in tables.TABLED}
    expected = {
        *(tables.GOLDENS / f"{table}.txt" for table in tables.TABLED.values()),
        *(NODES / name / "golden" / "topo.svg" for name in NAMES),
        *(
            NODES / name / "golden" / folder / file
            for name in NAMES
            for folder in FLAGS.values()
            for file in listed
        ),
    }
    assert set(owned()) == expected, hint("outputs")


def test_a_machine_is_drawn_as_was_reviewed(node_dir: Path) -> None:
    golden = node_dir / "golden" / "topo.svg"
    assert drawing(node_dir.name) == golden.read_text("utf-8"), hint("outputs")


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
