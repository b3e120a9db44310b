"""The scene: what is simulated, and which kubelet gets to see it."""

from pathlib import Path

import pytest

from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from nodetopo.errors import InputError
from nodetopo.formats.support_archive import SNAPSHOT, pack
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kernel.target import Target, open_target
from nodetopo.machines.bundled import machine
from nodetopo.model.codec import encode

NO_LIBRARY = Path("/nonexistent")


def test_a_named_machine_is_offered_to_a_stand_in_that_goes_away_with_it() -> None:
    with open_target(Settings(node_name="n", machine="dgx-1v")) as scene:
        assert (scene.simulated, (scene.socket_dir / "kubelet.sock").is_socket()) == (
            "dgx-1v",
            True,
        )
    assert not scene.socket_dir.exists()


def test_a_simulated_machine_bears_the_name_of_the_node_it_plays() -> None:
    with open_target(Settings(node_name="lab-1", machine="dgx-1v")) as scene:
        assert scene.machine.read().node == "lab-1"


def test_a_snapshot_file_is_simulated(tmp_path: Path) -> None:
    file = tmp_path / "node.json"
    file.write_text(encode(machine("l40s-pcie-4")))
    with open_target(Settings(node_name="n", snapshot=file)) as scene:
        assert (scene.simulated, len(scene.machine.read().gpus)) == ("node.json", 4)


def test_an_archive_of_support_is_simulated_too(tmp_path: Path) -> None:
    file = tmp_path / "support.tar.gz"
    file.write_bytes(pack({SNAPSHOT: encode(machine("dgx-1v")).encode()}, {}, 0))
    with open_target(Settings(node_name="n", snapshot=file)) as target:
        assert len(target.machine.read().gpus) == 8


def test_a_missing_snapshot_file_is_an_input_error(tmp_path: Path) -> None:
    settings = Settings(node_name="n", snapshot=tmp_path / "none.json")
    with pytest.raises(InputError, match=r"none\.json"), open_target(settings):
        pass


def test_plain_settings_never_simulate(tmp_path: Path) -> None:
    settings = Settings(node_name="n", nvml_library=NO_LIBRARY, device_plugin_dir=tmp_path)
    with open_target(settings) as scene:
        assert described(scene) == (None, tmp_path, False)


def test_without_nvml_the_default_machine_never_reaches_the_kubelet_of_the_host() -> None:
    settings = Settings(node_name="n", or_simulate=True, nvml_library=NO_LIBRARY)
    with open_target(settings) as scene:
        assert (scene.simulated, scene.fake_kubelet is None) == ("dgx-h100", False)
        assert scene.socket_dir != settings.device_plugin_dir


def test_a_machine_goes_to_a_kubelet_in_a_directory_asked_for_by_name(tmp_path: Path) -> None:
    settings = Settings(node_name="n", machine="dgx-h100", device_plugin_dir=tmp_path)
    with FakeKubelet(tmp_path), open_target(settings) as scene:
        assert described(scene) == ("dgx-h100", tmp_path, False)


def described(scene: Target) -> tuple[str | None, Path, bool]:
    """Return what is simulated, where the kubelet is, and whether it is a stand-in."""
    return scene.simulated, scene.socket_dir, scene.fake_kubelet is not None
