"""How devices reach containers, while the files that decide it change."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.components.gpus import hand_over_files
from nodetopo.deviceplugin.hand_over import NodeSetup, read_setup
from nodetopo.deviceplugin.settings import Strategy
from nodetopo.model.host import ContainerToolkit, HostSettings
from tests.components.gpus.plugin_sets import ServedNode, serving_node
from tests.deviceplugin.eventually import eventually
from tests.deviceplugin.machines import node

WHOLE = node("h100x8-nvswitch-2numa-8cx7")
GPU = "nvidia.com/gpu"
UUIDS = sorted(str(gpu.uuid) for gpu in WHOLE.gpus)


def specify(host: Path, *uuids: str) -> None:
    """Write a CDI specification of *uuids* below *host*."""
    place = host / "run/cdi/nvidia.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    devices = [{"name": uuid, "containerEdits": {"env": ["A=1"]}} for uuid in uuids]
    made = place.with_suffix(".tmp")
    made.write_text(json.dumps({"cdiVersion": "0.6.0", "kind": GPU, "devices": devices}))
    made.replace(place)


def toolkit(host: Path, text: str) -> None:
    """Write the configuration of NVIDIA's toolkit below *host*."""
    place = host / "etc/nvidia-container-runtime/config.toml"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def names_devices(served: ServedNode) -> bool:
    """Return whether a container would get its GPU by CDI, not by a variable."""
    assert eventually(lambda: served.listed(GPU) == {GPU: 8})
    given = served.kubelet.allocate(UUIDS[:1])
    assert bool(given.cdi_devices) != ("NVIDIA_VISIBLE_DEVICES" in given.envs)
    return bool(given.cdi_devices)


def test_the_way_follows_the_files_of_the_node(tmp_path: Path) -> None:
    specify(tmp_path, *UUIDS)
    with serving_node(device_list_strategy=("auto",), host_root=tmp_path) as served:
        served.plugins.take(WHOLE)
        assert names_devices(served)
        endpoint = served.plugins.states[GPU].endpoint

        served.plugins.look_again()  # nothing has changed
        assert served.plugins.states[GPU].endpoint == endpoint

        specify(tmp_path, *UUIDS[1:])
        served.plugins.look_again()
        assert served.plugins.strategies == (Strategy.ENVVAR,)
        assert eventually(lambda: served.is_followed(GPU))
        assert not names_devices(served)

        toolkit(tmp_path, "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n")
        served.plugins.look_again()
        chosen = served.plugins.hand_over
        assert chosen is not None
        assert "accepts neither" in str(chosen.problem)


def test_the_files_are_read_again_where_they_or_the_scan_say_something_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []

    def counted(root: Path, procfs: Path) -> NodeSetup:
        read.append(root)
        return read_setup(root, procfs)

    monkeypatch.setattr(hand_over_files, "read_setup", counted)
    specify(tmp_path, *UUIDS)
    with serving_node(device_list_strategy=("auto",), host_root=tmp_path) as served:
        for _ in range(3):
            served.plugins.take(WHOLE)
            served.plugins.look_again()
        assert len(read) == 1
        specify(tmp_path, *UUIDS[1:])
        served.plugins.take(WHOLE)
        assert len(read) == 2
        # Files that containerd's configuration imports may lie anywhere: only a scan finds them.
        toolkit = ContainerToolkit(path="/etc/nvidia-container-runtime/config.toml")
        served.plugins.take(replace(WHOLE, host=HostSettings(toolkit=toolkit)))
        assert len(read) == 3


def test_a_device_node_that_goes_and_comes_back_changes_the_way(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    edits = {"deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}]}
    devices = [{"name": uuid, "containerEdits": edits} for uuid in UUIDS]
    place = tmp_path / "run/cdi/nvidia.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps({"cdiVersion": "0.6.0", "kind": GPU, "devices": devices}))
    with serving_node(device_list_strategy=("auto",), host_root=tmp_path) as served:
        served.plugins.take(WHOLE)
        chosen = served.plugins.hand_over
        assert chosen is not None
        assert "names /dev/nvidia-uvm, which does not exist" in chosen.reason
        (tmp_path / "dev/nvidia-uvm").touch()
        served.plugins.look_again()
        assert served.plugins.strategies == (Strategy.CDI_CRI,)
        (tmp_path / "dev/nvidia-uvm").unlink()
        served.plugins.look_again()
        assert served.plugins.strategies == (Strategy.ENVVAR,)


def test_a_setting_wins_over_the_files(tmp_path: Path) -> None:
    toolkit(tmp_path, "accept-nvidia-visible-devices-as-volume-mounts = true\n")
    with serving_node(device_list_strategy=("cdi-cri",), host_root=tmp_path) as served:
        served.plugins.take(WHOLE)
        assert served.plugins.hand_over is None
        assert served.plugins.strategies == (Strategy.CDI_CRI,)


def test_where_nothing_is_offered_no_way_is_missed(tmp_path: Path) -> None:
    toolkit(tmp_path, "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n")
    asked: dict[str, Any] = {"device_list_strategy": ("auto",), "host_root": tmp_path}
    with serving_node(offer_gpus="never", **asked) as served:
        served.plugins.take(WHOLE)
        served.plugins.look_again()
        assert served.plugins.hand_over is None
    with serving_node(**asked) as served:
        served.plugins.take(WHOLE)
        found = served.plugins.hand_over
        assert found is not None
        assert found.problem is not None


def test_device_nodes_are_passed_beside_what_is_chosen_but_not_beside_cdi(tmp_path: Path) -> None:
    asked = ("auto", "device-specs")
    with serving_node(device_list_strategy=asked, host_root=tmp_path) as served:
        served.plugins.take(WHOLE)
        assert list(served.plugins.strategies) == ["cdi-cri"]  # nothing is known
        toolkit(tmp_path, "")
        served.plugins.look_again()
        assert list(served.plugins.strategies) == ["envvar", "device-specs"]
