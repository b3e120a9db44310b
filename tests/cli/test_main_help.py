"""Help and completion, which come from the parser itself."""

import subprocess

import pytest

from agent import __version__
from agent.cli.completion import levels
from agent.cli.main import parser
from tests.cli.conftest import Cli

COMMANDS = tuple(tuple(level.path.split()) for level in levels(parser()))


@pytest.mark.parametrize("command", COMMANDS, ids="-".join)
def test_every_command_explains_itself(cli: Cli, command: tuple[str, ...]) -> None:
    outcome = cli(*command, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(f"usage: {' '.join(('nodetopo', *command))}")


def test_the_version_is_the_package_s(cli: Cli) -> None:
    assert cli("version", "-o", "short").out == f"{__version__}\n"


def test_the_version_flag_prints_it_too(cli: Cli) -> None:
    assert cli("--version").out == f"nodetopo {__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_completion_script_parses(cli: Cli, shell: str) -> None:
    script = cli("completion", shell).out
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("heal",), ["health"]),
        (("topo", ""), ["matrix", "tree", "path", "-h", "--help"]),
        (("topo", "matrix", "--mach"), ["--machine"]),
        (("labels", "--machine", "dgx-1"), ["dgx-1v"]),
        (("audit", "--only", "qos", "-o", "js"), ["json"]),
        (("run", "--numa-mode", ""), ["numa", "socket", "none"]),
    ],
)
def test_bash_completes_a_word(cli: Cli, typed: tuple[str, ...], offered: list[str]) -> None:
    script = cli("completion", "bash").out
    words = " ".join(f"'{word}'" for word in ("nodetopo", *typed))
    program = (
        f"{script}\nCOMP_WORDS=({words}); COMP_CWORD={len(typed)}; _nodetopo\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["bash"], input=program, text=True, capture_output=True, check=True)
    assert done.stdout.split() == offered


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
        "simulate trace",
        "completion",
        "version",
    }
    assert wanted <= {" ".join(command) for command in COMMANDS}
