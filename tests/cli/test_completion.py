"""The completion scripts: what they offer."""

import subprocess

import pytest

from tests.cli.conftest import Cli


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_script_that_bash_can_read_parses(cli: Cli, shell: str) -> None:
    script = cli("completion", shell).out
    assert f"source <(nodetopo completion {shell})" in script.splitlines()[0]
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("heal",), ["health"]),
        (("topo", ""), ["matrix", "tree", "path", "complexes", "-h", "--help"]),
        (("topo", "matrix", "--mach"), ["--machine"]),
        (("labels", "--machine", "dgx-1"), ["dgx-1v"]),
        (("doctor", "--cluster", "hgx"), ["hgx-rails"]),
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
