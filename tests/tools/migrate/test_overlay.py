"""The overlay that is written sets nodetopo up as the programs were."""

from pathlib import Path

import pytest
import yaml

from nodetopo.kernel.settings.declare import key
from nodetopo.kernel.settings.origin import ConfigFile
from nodetopo.kernel.settings.resolve import Resolved
from nodetopo.tools.migrate.overlay import configuration_texts, overlay
from nodetopo.tools.migrate.read import report
from tests.deploy.kustomize import render
from tests.tools.migrate.documents import in_places, pod

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {"NODE_NAME": "node"}
CONFIG = """\
version: v1
flags:
  migStrategy: mixed
  gdrcopyEnabled: true
  plugin:
    passDeviceSpecs: true
    deviceListStrategy: [volume-mounts, envvar]
    sharedDevicesAllocationPolicy: packed
sharing:
  timeSlicing:
    failRequestsGreaterThanOne: true
    resources:
    - {name: nvidia.com/gpu, replicas: 4}
imex:
  channelIDs: [0]
"""


def _resolved(text: str, **environment: str) -> dict[str, object]:
    resolved = Resolved.of(
        flags={},
        environment={**ENVIRONMENT, **environment},
        file=ConfigFile(name="config.yaml", text=text),
    )
    return {key(name): getattr(resolved.settings, name) for name in resolved.origins}


def test_a_written_configuration_has_the_effect_of_nvidias() -> None:
    environment = {"DP_DISABLE_HEALTHCHECKS": "13,31", "GDS_ENABLED": "true"}
    plan = report([("a", CONFIG), ("b", pod(env=environment))]).plan
    (text,) = configuration_texts(plan).values()
    assert _resolved(text) == _resolved(CONFIG, **environment)


@pytest.mark.parametrize("document", sorted({text for _word, text in in_places()}))
def test_every_written_configuration_is_one_that_the_daemon_reads(document: str) -> None:
    for text in configuration_texts(report([("a", document)]).plan).values():
        _resolved(text)


def test_a_variable_wins_over_a_file_and_a_file_over_nvidias_default() -> None:
    plan = report([("a", CONFIG), ("b", pod(env={"MIG_STRATEGY": "single"}))]).plan
    settings = _resolved(configuration_texts(plan)["default"])
    assert settings["mig-strategy"] == "single"
    assert settings["device-list-strategy"] == ("volume-mounts", "envvar", "device-specs")


def test_the_overlay_mounts_each_named_configuration_with_what_it_needs(tmp_path: Path) -> None:
    values = """\
config:
  default: whole
  map:
    whole: |-
      version: v1
    parts.yaml: |-
      version: v1
      flags:
        migStrategy: mixed
        gdsEnabled: true
runtimeClassName: nvidia
"""
    folder = tmp_path / "overlay"
    folder.mkdir()
    # The parser of tests reads paths as kustomize does, relative or not.
    files = overlay(report([("values.yaml", values)]).plan, deploy=str(ROOT / "deploy/daemonset"))
    for name, text in files.items():
        (folder / name).write_text(text)
    objects = render(folder)
    (configs,) = (it for it in objects if it["kind"] == "ConfigMap")
    assert set(configs["data"]) == {"whole.yaml", "parts.yaml"}
    assert yaml.safe_load(configs["data"]["parts.yaml"])["mig-strategy"] == "mixed"
    (daemon,) = (it for it in objects if it["kind"] == "DaemonSet")
    spec = daemon["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    variables = {it["name"]: it.get("value") for it in container["env"]}
    assert variables["NODETOPO_DEFAULT_CONFIG"] == "whole"
    assert variables["NODETOPO_CONFIG_DIR"] == "/etc/nodetopo/configs"
    assert container["securityContext"]["capabilities"]["add"] == ["SYS_ADMIN"]
    assert spec["runtimeClassName"] == "nvidia"
    mounts = {it["mountPath"] for it in container["volumeMounts"]}
    assert {"/host/dev", "/etc/nodetopo/configs"} <= mounts
