"""What is compiled is what the definitions on the API server belong to."""

from pathlib import Path

import pytest

from tests.lab.schedulers.crds import MODULES
from tests.nightly.build import PROGRAMS


@pytest.mark.parametrize("project", PROGRAMS)
def test_the_module_pins_the_version_whose_definitions_are_installed(project: str) -> None:
    module = PROGRAMS[project].module
    name, _, version = MODULES[project].name.partition("@")
    assert f"require {name} {version}" in (module / "go.mod").read_text("utf-8").splitlines()
    assert f"{name} {version} {MODULES[project].digest}" in _sums(module)


def _sums(module: Path) -> list[str]:
    return (module / "go.sum").read_text("utf-8").splitlines()
