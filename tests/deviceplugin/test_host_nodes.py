from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.deviceplugin.host_nodes import (
    HostNodes,
    dev_root,
    driver_nodes,
    features_with_nodes,
    imex_problems,
    present_nodes,
)
from nodetopo.deviceplugin.settings import Feature, PluginSettings
from tests.deviceplugin.driver_tree import add_nodes, link, put

DRIVER = Path("/run/driver")


def test_only_control_nodes_that_the_host_has_are_found(tmp_path: Path) -> None:
    add_nodes(tmp_path / "run/driver", "nvidiactl", "nvidia-uvm", "nvidia0", "gdrdrv")
    settings = PluginSettings(dev_root=DRIVER, host_root=tmp_path)
    assert present_nodes(settings) == HostNodes(DRIVER, ("nvidiactl", "nvidia-uvm"))


def test_nodes_of_features_and_channels_are_found_if_they_are_asked_for(tmp_path: Path) -> None:
    nodes = (
        *("nvidia-caps-imex-channels/channel0", "gdrdrv", "nvidia-fs0", "nvidia-fs1"),
        *("infiniband/rdma_cm", "infiniband/uverbs0"),
    )
    add_nodes(tmp_path, *nodes)
    settings = PluginSettings(host_root=tmp_path, imex_channels=(0, 1), features=frozenset(Feature))
    assert present_nodes(settings).names == nodes


def test_features_are_recognized_by_their_nodes() -> None:
    nodes = ("nvidia-fs0", "infiniband/uverbs3", "nvidiactl")
    assert [*features_with_nodes(Feature, nodes)] == [Feature.GDS, Feature.MOFED]
    assert [*features_with_nodes([Feature.MOFED], nodes)] == [Feature.MOFED]


@pytest.mark.parametrize(
    ("is_required", "outcome"), [(True, "imex-required is set"), (False, "go without it")]
)
def test_a_missing_channel_is_a_problem(tmp_path: Path, outcome: str, *, is_required: bool) -> None:
    def found() -> tuple[str, ...]:
        settings = PluginSettings(imex_channels=(0,), host_root=tmp_path, dev_root=DRIVER)
        return imex_problems(settings, is_required=is_required)

    (problem,) = found()
    assert "channel0 is no character device" in problem
    assert outcome in problem
    channel = "nvidia-caps-imex-channels/channel0"
    put(tmp_path / "run/driver", f"/dev/{channel}")
    assert len(found()) == 1  # a file, and no device
    (tmp_path / "run/driver/dev" / channel).unlink()
    add_nodes(tmp_path / "run/driver", channel)
    assert found() == ()


@pytest.mark.parametrize(
    ("with_nodes", "expected"),
    [
        (("run/driver",), DRIVER),
        (("run/driver", "."), DRIVER),
        ((".",), Path("/")),
        ((), DRIVER),  # not seen: as with NVIDIA's
    ],
)
def test_device_nodes_are_with_the_driver_or_else_in_the_root(
    tmp_path: Path, with_nodes: tuple[str, ...], expected: Path
) -> None:
    (tmp_path / "run/driver/dev").mkdir(parents=True)
    for root in with_nodes:
        add_nodes(tmp_path / root, "nvidiactl")
    settings = PluginSettings(driver_root=DRIVER, host_root=tmp_path)
    assert dev_root(settings) == expected
    assert present_nodes(settings).root == driver_nodes(settings).root == expected
    said = replace(settings, dev_root=Path("/else"))
    assert dev_root(said) == Path("/else")


def test_a_root_behind_a_link_is_the_hosts_and_not_this_containers(tmp_path: Path) -> None:
    add_nodes(tmp_path / "run/driver", "nvidiactl")
    link(tmp_path, "/var/run", "/run")
    settings = PluginSettings(driver_root=Path("/var/run/driver"), host_root=tmp_path)
    assert dev_root(settings) == Path("/var/run/driver")
    assert present_nodes(settings).names == ("nvidiactl",)


def test_the_drivers_nodes_are_those_of_gpus_and_mig_devices_too(tmp_path: Path) -> None:
    names = ("nvidia-uvm", "nvidia0", "nvidia12", "nvidiactl", "nvidia-caps/nvidia-cap21", "null")
    add_nodes(tmp_path, *names)
    found = driver_nodes(PluginSettings(host_root=tmp_path)).names
    assert set(found) == {*names[:5], "nvidia-caps"}
