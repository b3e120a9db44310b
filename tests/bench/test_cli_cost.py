"""The modules that commands import; never times."""

import pytest

from tests.bench.cli_cost import COMMANDS, ROOT, costs, table


def test_the_table_has_a_line_for_each_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.cli_cost.COMMANDS", COMMANDS[:1])
    head, _, row = table((ROOT, ROOT), runs=1).splitlines()
    cells = row.strip("| ").split(" | ")
    assert head.count("minimum") == 2
    assert cells[0] == "`version`"
    assert (cells[3], len(cells)) == (cells[6], 7), "the modules of the same checkout"


def test_version_and_completion_import_hardly_more_than_the_parser() -> None:
    (bare,), (version,), (completion,) = (
        costs(command, (ROOT,), runs=0)
        for command in (("--help",), ("version",), ("completion", "bash"))
    )
    assert max(version.modules, completion.modules) <= bare.modules + 10
