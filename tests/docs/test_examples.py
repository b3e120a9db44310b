"""Examples of the pages do what the pages say: exported objects, their jobs, shared MIG devices."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodetopo.cli.main import main
from nodetopo.components.gpus.plan import PluginPlan
from nodetopo.components.labels.catalogue import labels
from nodetopo.deviceplugin.resources import offer
from nodetopo.kernel.settings.origin import ConfigFile
from nodetopo.kernel.settings.resolve import Resolved
from nodetopo.machines.bundled import machine
from tests.docs.test_commands import blocks
from tests.docs.test_links import ROOT

EXPORT = ROOT / "docs" / "reference" / "export.md"
CONFIGURATION = ROOT / "docs" / "operate" / "configuration.md"
YAML = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
NODES = 18


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return `nodes.json` of an NVL72 in the working directory."""
    own = labels(machine("gb200-nvl72"))
    items = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {**own, "kubernetes.io/hostname": name}},
        }
        for name in (f"tray-{at:02}" for at in range(1, NODES + 1))
    ]
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), "utf-8")
    monkeypatch.chdir(tmp_path)
    return path


def shown() -> list[tuple[str, str]]:
    found = [block.partition("\n") for block in blocks(EXPORT) if block.startswith("$ nodetopo ")]
    return [(command.removeprefix("$ nodetopo "), output) for command, _, output in found]


def job(at: int) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(YAML.findall(EXPORT.read_text("utf-8"))[at])
    return found


@pytest.mark.usefixtures("rack")
def test_the_page_shows_the_objects_that_are_exported_and_jobs_use_what_is_noted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    notes = []
    for command, output in shown():
        assert main(shlex.split(command)) == 0
        printed = capsys.readouterr()
        assert printed.out == output
        notes.append(printed.err)
    assert len(notes) == 2
    for key, value in job(0)["metadata"]["annotations"].items():
        assert f"{key}: {value}" in notes[0]
    (annotation,) = job(1)["spec"]["template"]["metadata"]["annotations"].items()
    assert ": ".join(annotation) in notes[1]


def test_the_jobs_of_the_page_fit_the_rack(rack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    levels = (
        job(0)["metadata"]["annotations"]["kai.scheduler/topology-required-placement"],
        *job(1)["spec"]["template"]["metadata"]["annotations"].values(),
    )
    for at, level in enumerate(levels):
        size = job(at)["spec"]["parallelism"]
        arguments = ("doctor", "--nodes", str(rack), "--only", "gangs", "--group")
        assert main((*arguments, f"{size}@{level}")) == 0
        assert main((*arguments, f"{NODES + 1}@{level}")) == 1
    assert "CLU-009" in capsys.readouterr().out


def test_replicas_of_a_mig_profile_are_printed_and_planned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = CONFIGURATION.read_text("utf-8").partition("### Share MIG devices by time-slicing")[2]
    config = tmp_path / "config.yaml"
    config.write_text(YAML.findall(text)[0], "utf-8")
    assert main(("run", "--print-config", "--config", str(config))) == 0
    assert re.search(r"time-slicing +nvidia.com/mig-1g.10gb=4 ", capsys.readouterr().out)

    file = ConfigFile(name=str(config), text=config.read_text("utf-8"))
    settings = Resolved.of(flags={}, environment={}, file=file).settings
    rules = PluginPlan.of(settings, None, is_simulated=True).rules
    offered = offer(machine("hgx-h100-mig"), rules, {}).resources
    counts = {resource.name: len(resource.devices) for resource in offered}
    assert counts == {
        "nvidia.com/gpu": 5,
        "nvidia.com/mig-1g.10gb": 28,
        "nvidia.com/mig-3g.40gb": 2,
    }
    for name, count in counts.items():
        assert f"{count} of\n`{name}`" in text or f"{count} of `{name}`" in text
