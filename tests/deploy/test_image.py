"""What goes into the image."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+)", re.MULTILINE)


def pins(lock: str) -> dict[str, str]:
    return dict(PIN.findall((ROOT / lock).read_text("utf-8")))


def test_every_dependency_is_in_the_runtime_lock() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = {re.split(r"[<>=!~ \[]", line)[0] for line in project["dependencies"]}
    assert needed - pins("requirements-runtime.lock").keys() == set()


def test_the_image_holds_the_versions_that_the_tests_ran_with() -> None:
    tested = pins("requirements.lock")
    assert {name: tested.get(name) for name in pins("requirements-runtime.lock")} == pins(
        "requirements-runtime.lock",
    )


def test_every_pin_carries_hashes() -> None:
    entries = (ROOT / "requirements-runtime.lock").read_text("utf-8").split("\n")
    pinned = [line for line in entries if PIN.match(line)]
    assert [line for line in pinned if not line.endswith("\\")] == []


def test_everything_fetched_for_the_image_is_checked_or_local() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    installs = re.findall(r"pip install[^&\n]*", text)
    unchecked = [
        line for line in installs if "--require-hashes" not in line and "--no-index" not in line
    ]
    assert unchecked == []


def test_everything_copied_into_the_image_exists() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    missing = [name for line in copied for name in line.split() if not (ROOT / name).exists()]
    assert missing == []
