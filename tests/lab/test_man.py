"""The manual pages, as groff and mandoc read them."""

import subprocess
from pathlib import Path

import pytest

from scripts.generators.man import FOLDER
from tests.lab.debian import ensure_installed

pytestmark = pytest.mark.lab

TIMEOUT_S = 60.0
PAGES = sorted(FOLDER.iterdir())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_groff_warns_of_nothing_and_prints_the_page(page: Path) -> None:
    groff = ensure_installed("groff", program="groff")
    done = subprocess.run(
        [groff, "-man", "-ww", "-Tutf8", "-rLL=80n", page],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert done.stderr == ""
    assert page.stem.partition("-")[2] in done.stdout
    assert "\\" not in done.stdout.replace("\\e", "")


def test_mandoc_finds_no_error() -> None:
    mandoc = ensure_installed("mandoc", program="mandoc")
    done = subprocess.run(
        [mandoc, "-Tlint", "-Wwarning", *PAGES],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    # A page has no date, because it is the same for the same parser.
    found = [line for line in done.stdout.splitlines() if "missing date" not in line]
    assert found == []
