from pathlib import Path

import pytest

from agent.deviceplugin.host_nodes import features_with_nodes, imex_problems, present_nodes
from agent.deviceplugin.settings import Feature, PluginSettings
from tests.deviceplugin.driver_tree import add_nodes, put

DRIVER = Path("/run/driver")


def test_only_control_nodes_that_the_host_has_are_found(tmp_path: Path) -> None:
    add_nodes(tmp_path / "run/driver", "nvidiactl", "nvidia-uvm", "nvidia0", "gdrdrv")
    settings = PluginSettings(dev_root=DRIVER, host_root=tmp_path)
    assert present_nodes(settings) == ("nvidiactl", "nvidia-uvm")


def test_nodes_of_features_and_channels_are_found_if_they_are_asked_for(tmp_path: Path) -> None:
    nodes = (
        *("nvidia-caps-imex-channels/channel0", "gdrdrv", "nvidia-fs0", "nvidia-fs1"),
        *("infiniband/rdma_cm", "infiniband/uverbs0"),
    )
    add_nodes(tmp_path, *nodes)
    settings = PluginSettings(host_root=tmp_path, imex_channels=(0, 1), features=frozenset(Feature))
    assert present_nodes(settings) == nodes


def test_features_are_recognized_by_their_nodes() -> None:
    nodes = ("nvidia-fs0", "infiniband/uverbs3", "nvidiactl")
    assert [*features_with_nodes(Feature, nodes)] == [Feature.GDS, Feature.MOFED]
    assert [*features_with_nodes([Feature.MOFED], nodes)] == [Feature.MOFED]


@pytest.mark.parametrize(
    ("is_required", "outcome"), [(True, "imex-required is set"), (False, "go without it")]
)
def test_a_missing_channel_is_a_problem(tmp_path: Path, outcome: str, *, is_required: bool) -> None:
    def found() -> tuple[str, ...]:
        return imex_problems((0,), is_required=is_required, host_root=tmp_path, dev_root=DRIVER)

    (problem,) = found()
    assert "channel0 is no character device" in problem
    assert outcome in problem
    channel = "nvidia-caps-imex-channels/channel0"
    put(tmp_path / "run/driver", f"/dev/{channel}")
    assert len(found()) == 1  # a file, and no device
    (tmp_path / "run/driver/dev" / channel).unlink()
    add_nodes(tmp_path / "run/driver", channel)
    assert found() == ()
