"""What a set of plugins asks of the node, and writes there, besides its resources."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from nodetopo.components.gpus.plan import load_table
from nodetopo.components.gpus.plugins import PluginSet
from nodetopo.deviceplugin.registration import Registration
from nodetopo.errors import InputError, UnreadableError
from nodetopo.kernel.places import Places
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kernel.settings.own import HOST_PLUGINS_REGISTRY
from tests.components.gpus.plugin_sets import serving_node
from tests.deviceplugin.driver_tree import VERSION, add_nodes, install
from tests.deviceplugin.machines import node

WHOLE = node("h100x8-nvswitch-2numa-8cx7")
GPU = "nvidia.com/gpu"


def test_a_channel_that_is_missing_is_said_once_and_does_without(tmp_path: Path) -> None:
    with capture_logs() as lines, serving_node(imex_channels=(0,), host_root=tmp_path) as served:
        served.plugins.take(WHOLE)
        served.plugins.take(replace(WHOLE, node="again"))
        assert served.listed(GPU) == {GPU: 8}
    told = [line["about"] for line in lines if line["event"] == "setting"]
    assert len(told) == 1
    assert "channel0 is no character device: containers go without it" in told[0]


def test_what_the_settings_warn_of_is_not_said_again() -> None:
    with capture_logs() as lines, serving_node(device_list_strategy=("envvar",)) as served:
        served.plugins.take(WHOLE)
    assert [line for line in lines if line["event"] == "setting"] == []


def test_a_channel_that_is_required_and_missing_stops_the_start(tmp_path: Path) -> None:
    with (
        pytest.raises(UnreadableError, match="imex-required is set"),
        serving_node(imex_channels=(0,), imex_required=True, host_root=tmp_path),
    ):
        pass


def test_the_specification_names_what_is_offered_before_it_is_offered(tmp_path: Path) -> None:
    snapshot = replace(WHOLE, driver_version=VERSION)
    install(tmp_path)
    add_nodes(tmp_path, "nvidiactl", "nvidia-uvm", *(f"nvidia{n}" for n in range(8)))
    settings = {
        "cdi_spec": "write",
        "cdi_kind": "device-plugin.nodetopo.io/gpu",
        "host_root": tmp_path,
        "procfs_root": tmp_path,
    }
    with serving_node(**settings) as served:
        served.plugins.take(snapshot)
        (path,) = (tmp_path / "var/run/cdi").iterdir()
        written = path.read_text(encoding="utf-8")
        assert all(gpu.id in written for gpu in WHOLE.gpus)
        served.reconfigure(**settings, exclude_gpus=("GPU3",))
        written = path.read_text(encoding="utf-8")
        assert [gpu.name for gpu in WHOLE.gpus if gpu.id not in written] == ["GPU3"]


def test_of_a_simulated_machine_nothing_is_written_and_nothing_is_sought(tmp_path: Path) -> None:
    settings = Settings(
        node_name="n", cdi_spec="write", imex_channels=(0,), imex_required=True, host_root=tmp_path
    )
    plugins = PluginSet(settings, tmp_path, load_table(settings), is_simulated=True)
    plugins.take(WHOLE)
    plugins.stop()
    assert not (tmp_path / "var").exists()


@pytest.mark.parametrize(
    ("directory", "registry", "is_simulated", "expected"),
    [
        ("/k", "/r", False, Registration.BOTH),
        ("/k", "/r", True, Registration.BOTH),
        ("/k", str(HOST_PLUGINS_REGISTRY), False, Registration.BOTH),
        ("/k", str(HOST_PLUGINS_REGISTRY), True, Registration.SOCKET),
        ("/stand-in", "/r", True, Registration.SOCKET),
    ],
)
def test_gpus_that_do_not_exist_never_come_before_the_hosts_plugin_watcher(
    directory: str, registry: str, expected: Registration, *, is_simulated: bool
) -> None:
    settings = Settings(
        node_name="n",
        registration="both",
        device_plugin_dir=Path("/k"),
        plugins_registry_dir=Path(registry),
    )
    places = Places.of(settings, Path(directory), is_simulated=is_simulated)
    assert places.registration is expected


def test_a_registry_in_which_no_socket_fits_stops_the_start(tmp_path: Path) -> None:
    registry = tmp_path / ("x" * 100)
    with (
        pytest.raises(InputError, match="a unix socket may have 107"),
        serving_node(registration="both", plugins_registry_dir=registry),
    ):
        pass


def test_a_resource_whose_name_fits_into_no_registry_leaves_the_others_alone() -> None:
    with TemporaryDirectory(prefix="nodetopo-") as short:
        room = 107 - len(f"{short}/x/.nodetopo-gpu-4194304-00000000.sock")
        registry = Path(short, "x" * (room + 1))
        registry.mkdir()
        check_long_names_are_refused(registry)


def check_long_names_are_refused(registry: Path) -> None:
    words = {"registration": "both", "plugins_registry_dir": registry, "mig_strategy": "mixed"}
    with serving_node(**words) as served, capture_logs() as lines:
        served.plugins.take(node("h100x8-nvswitch-2numa-mig"))
        assert list(served.plugins.states) == [GPU]
    refused = [line["resource"] for line in lines if line["event"] == "resource not served"]
    assert refused == ["nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"]
