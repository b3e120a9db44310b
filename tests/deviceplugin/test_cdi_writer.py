import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.deviceplugin.cdi_writer import CdiSettings, CdiWriter
from agent.deviceplugin.settings import Feature, PluginSettings
from agent.errors import InputError
from tests.deviceplugin.cdi_schema import problems
from tests.deviceplugin.driver_tree import UBUNTU, VERSION, add_nodes, install, link, put
from tests.deviceplugin.machines import node

ONE = node("l4x1-1numa")
MIG = node("h100x8-nvswitch-2numa-mig")


def writer(host: Path, settings: CdiSettings | None = None, **plugin: Any) -> CdiWriter:
    return CdiWriter(settings or CdiSettings(), PluginSettings(host_root=host, **plugin))


def written(host: Path) -> dict[str, Any]:
    """Return each valid specification of the host by its kind."""
    directory = host / "var/run/cdi"
    files = [*directory.iterdir()] if directory.exists() else []
    specs = [json.loads(file.read_text("utf-8")) for file in files]
    assert all(problems(spec) == () for spec in specs)
    return {spec["kind"]: spec for spec in specs}


@pytest.fixture
def host(tmp_path: Path) -> Path:
    install(tmp_path)
    put(tmp_path, "/usr/bin/nvidia-cdi-hook", mode=0o755)
    add_nodes(tmp_path, "nvidiactl", "nvidia-uvm")
    return tmp_path


def test_gpus_are_written_as_the_runtime_sees_the_host(host: Path) -> None:
    assert writer(host).update(ONE, {}) == ()
    (spec,) = written(host).values()
    assert spec["kind"] == "device-plugin.nodetopo.io/gpu"
    assert [device["name"] for device in spec["devices"]] == [ONE.gpus[0].id, "all"]
    assert str(host) not in json.dumps(spec)
    edits = spec["containerEdits"]
    assert [one["path"] for one in edits["deviceNodes"]] == ["/dev/nvidiactl", "/dev/nvidia-uvm"]
    assert f"{UBUNTU}/libcuda.so.{VERSION}" in [one["hostPath"] for one in edits["mounts"]]
    assert len(edits["hooks"]) == 2


def test_a_driver_container_has_a_root_of_its_own(host: Path) -> None:
    root = host / "run/nvidia/driver"
    install(root, "/usr/lib64")
    add_nodes(root, "nvidiactl")
    assert writer(host, driver_root=Path("/run/nvidia/driver")).update(ONE, {}) == ()
    (spec,) = written(host).values()
    assert (
        spec["containerEdits"]["deviceNodes"][0]["hostPath"] == "/run/nvidia/driver/dev/nvidiactl"
    )
    mount = spec["containerEdits"]["mounts"][0]
    assert mount["hostPath"] == f"/run/nvidia/driver/usr/lib64/libcuda.so.{VERSION}"
    assert mount["containerPath"] == f"/usr/lib64/libcuda.so.{VERSION}"


def test_a_root_with_the_drivers_files_alone_leaves_device_nodes_where_they_are(
    host: Path,
) -> None:
    install(host / "usr/local/nvidia", "/lib64")
    assert writer(host, driver_root=Path("/usr/local/nvidia")).update(ONE, {}) == ()
    (spec,) = written(host).values()
    nodes = [spec["devices"][0]["containerEdits"], spec["containerEdits"]]
    assert not [one for edits in nodes for one in edits["deviceNodes"] if "hostPath" in one]
    assert spec["containerEdits"]["mounts"][0]["hostPath"].startswith("/usr/local/nvidia/lib64/")


def test_the_directory_is_the_hosts_and_not_this_containers(host: Path) -> None:
    (host / "var").mkdir()
    link(host, "/var/run", "/run")
    assert writer(host).update(ONE, {}) == ()
    assert [file.suffix for file in (host / "run/cdi").iterdir()] == [".json"]


def test_a_change_of_mig_is_written(host: Path) -> None:
    kept = writer(host)
    kept.update(replace(MIG, gpus=tuple(replace(gpu, mig=None) for gpu in MIG.gpus)), {})
    before = {device["name"] for spec in written(host).values() for device in spec["devices"]}
    gpu = next(gpu for gpu in MIG.gpus if gpu.mig and gpu.mig.instances)
    assert gpu.mig is not None
    assert gpu.minor is not None
    one = gpu.mig.instances[0]
    assert one.gpu_instance is not None
    numbers = {
        (gpu.minor, one.gpu_instance, None): 30,
        (gpu.minor, one.gpu_instance, one.compute_instance): 31,
    }
    kept.update(MIG, numbers)
    after = {device["name"] for spec in written(host).values() for device in spec["devices"]}
    assert after - before == {one.uuid}


def test_a_file_that_somebody_deleted_is_back_after_the_next_scan(host: Path) -> None:
    kept = writer(host)
    kept.update(ONE, {})
    (file,) = (host / "var/run/cdi").iterdir()
    file.unlink()
    kept.update(ONE, {})
    assert file.exists()


@pytest.mark.parametrize("silent", [replace(ONE, gpus=()), replace(ONE, driver_version=None)])
def test_missing_driver_facts_change_nothing(host: Path, silent: Any) -> None:
    kept = writer(host)
    kept.update(ONE, {})
    before = written(host)
    assert kept.update(silent, {}) == ()
    assert written(host) == before


def test_gpus_without_numbers_keep_the_written_file(host: Path) -> None:
    kept = writer(host)
    kept.update(ONE, {})
    before = written(host)
    nameless = replace(ONE, gpus=(replace(ONE.gpus[0], minor=None),))
    (warning,) = kept.update(nameless, {})
    assert "no GPU has a known minor number" in warning
    assert written(host) == before


def test_a_host_without_the_toolkit_gets_a_specification_without_hooks(host: Path) -> None:
    (host / "usr/bin/nvidia-cdi-hook").unlink()
    (warning,) = writer(host).update(ONE, {})
    assert "no nvidia-cdi-hook" in warning
    (spec,) = written(host).values()
    assert "hooks" not in spec["containerEdits"]


def test_a_driver_root_that_is_not_there_is_warned_about(host: Path) -> None:
    (warning,) = writer(host, driver_root=Path("/run/none")).update(ONE, {})
    assert "no library of the driver" in warning


def test_channels_and_features_have_a_file_each_while_their_nodes_are_there(host: Path) -> None:
    nodes = ("nvidia-caps-imex-channels/channel0", "gdrdrv", "nvidia-fs0", "infiniband/uverbs0")
    add_nodes(host, *nodes)
    put(host, "/etc/cufile.json")
    vendor = "device-plugin.nodetopo.io"
    kept = writer(host, imex_channels=(0,), features=frozenset(Feature))
    assert kept.update(ONE, {}) == ()
    found = written(host)
    classes = ("gpu", "imex-channel", "gdrcopy", "gds", "mofed")
    assert set(found) == {f"{vendor}/{name}" for name in classes}
    edits = found[f"{vendor}/gds"]["devices"][0]["containerEdits"]
    assert [one["path"] for one in edits["deviceNodes"]] == ["/dev/nvidia-fs0"]
    assert [one["hostPath"] for one in edits["mounts"]] == ["/etc/cufile.json"]
    for name in nodes:
        (host / "dev" / name).unlink()
    assert kept.update(ONE, {}) == ()
    assert set(written(host)) == {f"{vendor}/gpu"}


def test_a_directory_that_takes_no_file_is_a_warning(host: Path) -> None:
    put(host, "/var/run/cdi")
    (warning,) = writer(host).update(ONE, {})
    assert warning.startswith("CDI specification not written: cannot write")


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "nvidia.com/gpu"},
        {"kind": "k8s.device-plugin.nvidia.com/gpu"},
        {"kind": "gpu"},
        {"directory": Path("cdi")},
        {"hook": Path("nvidia-cdi-hook")},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        CdiSettings(**wrong)
