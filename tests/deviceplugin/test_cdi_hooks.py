"""Which hooks an installed program has, without running it."""

from pathlib import Path

import pytest

from nodetopo.deviceplugin.cdi_hooks import ENABLE_COMPAT, KEEP_NODES, OLDEST, HookProgram
from tests.deviceplugin.driver_tree import put

HOOK = "/usr/bin/nvidia-cdi-hook"
NEW = f"\x7fELF chmodcreate-symlinks{ENABLE_COMPAT}update-ldcache{KEEP_NODES}"


def _put(root: Path, path: str, text: str) -> None:
    put(root, path, text, mode=0o755)


@pytest.mark.parametrize(
    ("text", "newer"),
    [
        (NEW, {ENABLE_COMPAT, KEEP_NODES}),
        (f"\x7fELF {ENABLE_COMPAT}", {ENABLE_COMPAT}),
        ("\x7fELF create-symlinks", set()),
        ("", set()),
        # Over the border of two reads, which are of a MiB each.
        ("x" * ((1 << 20) - 9) + KEEP_NODES, {KEEP_NODES}),
        ("x" * (3 << 20) + ENABLE_COMPAT, {ENABLE_COMPAT}),
    ],
)
def test_a_program_has_the_hooks_that_it_names(text: str, newer: set[str], tmp_path: Path) -> None:
    _put(tmp_path, HOOK, text)
    assert HookProgram().hooks(tmp_path, HOOK) == OLDEST | newer


def test_a_script_runs_the_program_beside_it(tmp_path: Path) -> None:
    _put(tmp_path, HOOK, f'#!/bin/sh\n# {ENABLE_COMPAT}\nexec {HOOK}.real "$@"\n')
    assert HookProgram().hooks(tmp_path, HOOK) == OLDEST
    _put(tmp_path, f"{HOOK}.real", NEW)
    assert HookProgram().hooks(tmp_path, HOOK) == OLDEST | {ENABLE_COMPAT, KEEP_NODES}
    _put(tmp_path, f"{HOOK}.real", "#!/bin/sh\n")
    assert HookProgram().hooks(tmp_path, HOOK) == OLDEST


def test_what_cannot_be_executed_is_no_program(tmp_path: Path) -> None:
    assert HookProgram().hooks(tmp_path, HOOK) is None
    put(tmp_path, HOOK, NEW)
    assert HookProgram().hooks(tmp_path, HOOK) is None


def test_a_program_that_is_replaced_is_read_again(tmp_path: Path) -> None:
    program = HookProgram()
    _put(tmp_path, HOOK, "old")
    assert program.hooks(tmp_path, HOOK) == OLDEST
    _put(tmp_path, HOOK, NEW)
    assert program.hooks(tmp_path, HOOK) == OLDEST | {ENABLE_COMPAT, KEEP_NODES}
