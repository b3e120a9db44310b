"""The README and the pages beside it show what the program prints."""

import json
import re
from pathlib import Path

import pytest

from nodetopo.cli.main import main
from scripts.generators.once import once

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
TRY = (ROOT / "docs/operate/try.md").read_text("utf-8")
CLI = (ROOT / "docs/reference/cli.md").read_text("utf-8")
POD = re.compile(r"```yaml\n((?:(?!```).)*?^kind: Pod$.*?)```", re.DOTALL | re.MULTILINE)
PAGES = [README, *(page.read_text("utf-8") for page in sorted((ROOT / "docs").rglob("*.md")))]
PODS = [found for page in PAGES for found in POD.findall(page)]


def test_the_matrix_of_the_command_line_page_is_the_one_that_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["topo", "matrix", "--machine", "dgx-1v", "-o", "short"]) == 0
    printed = (line.expandtabs(6).rstrip() for line in capsys.readouterr().out.splitlines())
    assert "\n".join(printed) in CLI


def test_the_pages_show_what_the_daemon_prints_once() -> None:
    simulated, _blank, rest = once().partition("\n")
    assert simulated in TRY
    _before, said, rest = rest.partition("\na pod asks for GPUs\n")
    assert said + rest.partition("\nmetrics\n")[0] in TRY
    _before, said, rest = README.partition("\na pod asks for GPUs\n")
    assert said + rest.partition("```")[0] in TRY


def test_the_readme_shows_the_rejection_that_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = tmp_path / "pod.yaml"
    six = POD.findall(README)[0].replace('gpu: "4"', 'gpu: "6"')
    manifest.write_text(six.replace("four-close-gpus", "six-gpus"), "utf-8")
    what = ("--machine", "dgx-h100", "--policy", "single-numa-node")
    assert main(["admit", "--manifest", str(manifest), *what]) == 1
    assert capsys.readouterr().out in README


@pytest.mark.parametrize("manifest", PODS)
def test_pods_of_the_pages_pass_the_rules_of_pods(
    manifest: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(manifest, "utf-8")
    main(["audit", "--manifest", str(path), "--machine", "dgx-h100", "-o", "json"])
    results = json.loads(capsys.readouterr().out)["results"]
    of_pods = [one for one in results if one["id"].startswith(("POD-", "QOS-"))]
    assert of_pods
    assert [one for one in of_pods if one["verdict"] not in ("pass", "unknown")] == []


def test_the_command_line_page_has_a_row_for_every_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"]) == 0
    commands = re.findall(r"^    (\w[\w-]*)", capsys.readouterr().out, re.MULTILINE)
    assert commands
    assert re.findall(r"^\| `(\w[\w-]*)` \|", CLI, re.MULTILINE) == commands
