"""Help, which comes from the parser itself."""

from importlib import import_module

import pytest

from nodetopo import __version__
from nodetopo.cli.main import parser
from nodetopo.cli.words import levels
from tests.cli.conftest import Cli

COMMANDS = tuple(tuple(level.path.split()) for level in levels(parser()))


@pytest.mark.parametrize("command", COMMANDS, ids="-".join)
def test_every_command_explains_itself(cli: Cli, command: tuple[str, ...]) -> None:
    outcome = cli(*command, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(f"usage: {' '.join(('nodetopo', *command))}")


@pytest.mark.parametrize("command", COMMANDS, ids="-".join)
def test_every_command_names_the_module_that_runs_it(command: tuple[str, ...]) -> None:
    level = next(level for level in levels(parser()) if tuple(level.path.split()) == command)
    is_group = any(len(other) > len(command) == 1 and other[:1] == command for other in COMMANDS)
    module = level.parser.get_default("module")
    assert (module is None) == (is_group or not command)
    if module is not None:
        assert callable(import_module(f"nodetopo.cli.{module}").run)


@pytest.mark.parametrize("group", [(), ("topo",), ("nccl",), ("simulate",)])
def test_a_group_without_a_command_prints_its_help(cli: Cli, group: tuple[str, ...]) -> None:
    assert cli(*group) == cli(*group, "--help")


@pytest.mark.parametrize("command", ["health", "audit", "labels", "doctor"])
def test_help_sums_up_the_live_node_and_help_all_lists_it(cli: Cli, command: str) -> None:
    short, whole = (cli(command, flag) for flag in ("--help", "--help-all"))
    assert (whole.code, whole.err) == (0, "")
    assert "see --help-all" in short.out
    assert "--sysfs-root DIR" not in short.out
    assert "--sysfs-root DIR" in whole.out
    assert "see --help-all" not in whole.out
    assert set(short.out.splitlines()) - set(whole.out.splitlines()) <= {
        line for line in short.out.splitlines() if "see --help-all" in line
    }


def test_help_all_of_run_lists_nvidia_s_flags(cli: Cli) -> None:
    assert "--mps-root" not in cli("run", "--help").out
    assert "--mps-root" in cli("run", "--help-all").out


def test_the_version_is_the_package_s(cli: Cli) -> None:
    assert cli("version", "-o", "short").out == f"{__version__}\n"


def test_the_version_flag_prints_it_too(cli: Cli) -> None:
    assert cli("--version").out == f"nodetopo {__version__}\n"


def test_the_commands_of_the_design_are_all_there() -> None:
    wanted = {
        "run",
        "topo matrix",
        "topo tree",
        "topo path",
        "labels",
        "health",
        "audit",
        "admit",
        "allocate",
        "capture",
        "explain",
        "simulate machines",
        "completion",
        "version",
    }
    assert wanted <= {" ".join(command) for command in COMMANDS}
