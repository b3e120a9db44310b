import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.deviceplugin.cdi import OWN_KIND
from nodetopo.deviceplugin.cdi_hooks import ENABLE_COMPAT, KEEP_NODES
from nodetopo.deviceplugin.cdi_writer import CdiFile, CdiReport, CdiSettings, CdiWriter
from nodetopo.deviceplugin.settings import Feature, PluginSettings
from nodetopo.errors import InputError
from tests.deviceplugin.cdi_schema import problems
from tests.deviceplugin.driver_tree import UBUNTU, VERSION, add_nodes, install, know, link, put
from tests.deviceplugin.machines import node

ONE = node("l4x1-1numa")
MIG = node("h100x8-nvswitch-2numa-mig")
EIGHT = node("h100x8-nvswitch-2numa-8cx7")
GPU = ONE.gpus[0].id
NODES = ("nvidiactl", "nvidia-uvm", *(f"nvidia{n}" for n in range(8)))
DRIVER = Path("/run/nvidia/driver")


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
    put(tmp_path, "/usr/bin/nvidia-cdi-hook", f"{ENABLE_COMPAT}{KEEP_NODES}", mode=0o755)
    add_nodes(tmp_path, *NODES)
    return tmp_path


def test_gpus_are_written_as_the_runtime_sees_the_host(host: Path) -> None:
    report = writer(host).update(ONE, {}, [GPU])
    assert report == CdiReport(devices=frozenset({GPU, "all"}))
    (spec,) = written(host).values()
    assert spec["kind"] == "device-plugin.nodetopo.io/gpu"
    assert [device["name"] for device in spec["devices"]] == [ONE.gpus[0].id, "all"]
    assert str(host) not in json.dumps(spec)
    edits = spec["containerEdits"]
    assert [one["path"] for one in edits["deviceNodes"]] == ["/dev/nvidiactl", "/dev/nvidia-uvm"]
    assert f"{UBUNTU}/libcuda.so.{VERSION}" in [one["hostPath"] for one in edits["mounts"]]
    assert called(edits) == (LINKS, ENABLE_COMPAT, CACHE, KEEP_NODES)


LINKS, CACHE = "create-symlinks", "update-ldcache"


def called(edits: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of the hooks of *edits*."""
    return tuple(hook["args"][1] for hook in edits.get("hooks", ()))


@pytest.mark.parametrize(
    ("disabled", "hooks"),
    [
        ((ENABLE_COMPAT,), (LINKS, CACHE, KEEP_NODES)),
        ((KEEP_NODES, CACHE, "chmod"), (LINKS, ENABLE_COMPAT)),
        (("all",), ()),
    ],
)
def test_hooks_that_are_disabled_are_left_out(
    disabled: tuple[str, ...], hooks: tuple[str, ...], host: Path
) -> None:
    report = writer(host, CdiSettings(disabled_hooks=disabled)).update(ONE, {}, [GPU])
    (spec,) = written(host).values()
    assert called(spec["containerEdits"]) == hooks
    assert report.warnings == ()


def test_without_the_hook_for_links_libraries_are_mounted_at_them(host: Path) -> None:
    writer(host, CdiSettings(disabled_hooks=(LINKS,))).update(ONE, {}, [GPU])
    (spec,) = written(host).values()
    edits = spec["containerEdits"]
    assert called(edits) == (ENABLE_COMPAT, CACHE, KEEP_NODES)
    assert f"{UBUNTU}/libcuda.so.1" in [one["containerPath"] for one in edits["mounts"]]


def test_a_hook_that_the_installed_program_lacks_is_not_called(host: Path) -> None:
    (host / "usr/bin/nvidia-cdi-hook").write_text("of toolkit 1.17.4")
    (warning,) = writer(host).update(ONE, {}, [GPU]).warnings
    assert "install NVIDIA Container Toolkit 1.17.5 or newer" in warning
    (spec,) = written(host).values()
    assert called(spec["containerEdits"]) == (LINKS, CACHE)
    for disabled in ("all", ENABLE_COMPAT):
        settings = CdiSettings(disabled_hooks=(disabled,))
        assert writer(host, settings).update(ONE, {}, [GPU]).warnings == ()


def nodes_and_libraries(host: Path) -> tuple[list[str], list[str]]:
    """Return which paths of the host a container is given: device nodes, and CUDA's library."""
    (spec,) = written(host).values()
    every = [spec["containerEdits"], *(device["containerEdits"] for device in spec["devices"])]
    nodes = [one for edits in every for one in edits.get("deviceNodes", ())]
    mounts = [one["hostPath"] for one in spec["containerEdits"]["mounts"]]
    return (
        sorted({one.get("hostPath", one["path"]) for one in nodes}),
        sorted({path for path in mounts if "/libcuda.so." in path}),
    )


def test_a_driver_container_has_files_and_device_nodes_in_a_root_of_its_own(host: Path) -> None:
    install(host / "run/nvidia/driver", "/usr/lib64")
    add_nodes(host / "run/nvidia/driver", *NODES)
    assert writer(host, driver_root=DRIVER).update(ONE, {}, [GPU]).problem is None
    assert nodes_and_libraries(host) == (
        [f"{DRIVER}/dev/{name}" for name in ("nvidia-uvm", "nvidia0", "nvidiactl")],
        [f"{DRIVER}/usr/lib64/libcuda.so.{VERSION}"],
    )
    (spec,) = written(host).values()
    assert spec["containerEdits"]["mounts"][0]["containerPath"].startswith("/usr/lib64/")


def test_a_root_with_the_drivers_files_alone_leaves_device_nodes_where_they_are(
    tmp_path: Path,
) -> None:
    install(tmp_path / "usr/local/nvidia", "/lib64")
    add_nodes(tmp_path, *NODES)
    root = Path("/usr/local/nvidia")
    assert writer(tmp_path, driver_root=root).update(ONE, {}, [GPU]).problem is None
    assert nodes_and_libraries(tmp_path) == (
        ["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"],
        [f"/usr/local/nvidia/lib64/libcuda.so.{VERSION}"],
    )


def test_a_root_of_device_nodes_that_is_named_is_the_one(host: Path) -> None:
    install(host / "run/nvidia/driver", "/usr/lib64")
    add_nodes(host / "run/nvidia/driver", *NODES)
    split = writer(host, driver_root=DRIVER, dev_root=Path("/"))
    assert split.update(ONE, {}, [GPU]).problem is None
    nodes, libraries = nodes_and_libraries(host)
    assert nodes == ["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"]
    assert libraries == [f"{DRIVER}/usr/lib64/libcuda.so.{VERSION}"]


def test_a_driver_that_the_loaders_cache_alone_knows_is_found(tmp_path: Path) -> None:
    directory = "/usr/local/nvidia/lib64"
    install(tmp_path, directory)
    add_nodes(tmp_path, *NODES)
    kept = writer(tmp_path)
    problem = kept.update(ONE, {}, [GPU]).problem
    assert problem is not None
    assert f"no libcuda.so.{VERSION} was found below /" in problem
    assert written(tmp_path) == {}
    know(tmp_path, f"{directory}/libcuda.so.1")
    assert kept.update(ONE, {}, [GPU]).problem is None
    assert nodes_and_libraries(tmp_path) == (
        ["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"],
        [f"{directory}/libcuda.so.{VERSION}"],
    )


@pytest.mark.parametrize(
    ("absent", "words"),
    [
        (f"{UBUNTU[1:]}/libcuda.so.{VERSION}", f"no libcuda.so.{VERSION} was found below /,"),
        ("dev/nvidiactl", "without /dev/nvidiactl no container can use a GPU"),
        ("dev/nvidia-uvm", "without /dev/nvidia-uvm no container can use a GPU"),
        ("dev/nvidia0", f"GPU0 ({GPU}) needs /dev/nvidia0, which does not exist"),
    ],
)
def test_a_specification_that_starts_no_container_is_not_written_and_the_old_one_stays(
    host: Path, absent: str, words: str
) -> None:
    fresh = writer(host)
    away = host / "away"
    (host / absent).rename(away)
    report = fresh.update(ONE, {}, [GPU])
    assert written(host) == {}
    assert report.devices == frozenset()
    assert report.problem is not None
    assert words in report.problem
    assert "there is none, and 1 device is not handed out" in report.problem
    assert " — " in report.problem  # a cure

    away.rename(host / absent)
    assert fresh.update(ONE, {}, [GPU]) == CdiReport(devices=frozenset({GPU, "all"}))
    before = written(host)

    (host / absent).rename(away)
    report = fresh.update(replace(ONE, driver_version=VERSION), {}, [GPU])
    assert written(host) == before
    assert report.devices == {GPU, "all"}
    assert "the one from before stays" in str(report.problem)
    assert "not handed out" not in str(report.problem)
    away.rename(host / absent)
    assert fresh.update(ONE, {}, [GPU]).problem is None


def test_after_a_restart_the_specification_from_before_counts(host: Path) -> None:
    writer(host).update(ONE, {}, [GPU])
    (host / "dev/nvidiactl").unlink()
    report = writer(host).update(ONE, {}, [GPU])
    assert report.devices == {GPU, "all"}
    assert "the one from before stays" in str(report.problem)


def test_a_device_without_its_node_is_left_out_and_the_others_are_written(host: Path) -> None:
    wanted = [gpu.id for gpu in EIGHT.gpus]
    (host / "dev/nvidia3").unlink()
    report = writer(host).update(EIGHT, {}, wanted)
    assert report.devices == {"all", *wanted} - {wanted[3]}
    assert "1 device is not handed out" in str(report.problem)
    assert f"GPU3 ({wanted[3]}) needs /dev/nvidia3, which does not exist" in str(report.problem)


def test_a_device_that_nobody_is_given_is_no_problem(host: Path) -> None:
    wanted = [gpu.id for gpu in EIGHT.gpus if gpu.index != 3]
    (host / "dev/nvidia3").unlink()
    report = writer(host).update(EIGHT, {}, wanted)
    assert report.problem is None
    assert "needs /dev/nvidia3" in report.warnings[0]


def test_a_problem_of_many_devices_names_a_few(host: Path) -> None:
    for name in NODES[2:9]:
        (host / "dev" / name).unlink()
    problem = writer(host).update(EIGHT, {}, [gpu.id for gpu in EIGHT.gpus]).problem
    assert problem is not None
    assert problem.count("does not exist") == 3
    assert "; and 4 more — " in problem
    assert len(problem) < 1024


def test_a_file_of_another_kind_defines_nothing_of_ours(host: Path) -> None:
    (host / "dev/nvidiactl").unlink()
    path = CdiFile(host / "var/run/cdi", OWN_KIND).path
    put(host, f"/var/run/cdi/{path.name}", '{"kind": "a.b/gpu", "devices": [{"name": "all"}]}')
    assert writer(host).update(ONE, {}, [GPU]).devices == frozenset()


def test_the_directory_is_the_hosts_and_not_this_containers(host: Path) -> None:
    (host / "var").mkdir()
    link(host, "/var/run", "/run")
    assert writer(host).update(ONE, {}).problem is None
    assert [file.suffix for file in (host / "run/cdi").iterdir()] == [".json"]


def test_a_change_of_mig_is_written(host: Path) -> None:
    kept = writer(host)
    add_nodes(host, "nvidia-caps/nvidia-cap30", "nvidia-caps/nvidia-cap31")
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
    assert kept.update(silent, {}, [GPU]) == CdiReport(devices=frozenset({GPU, "all"}))
    assert written(host) == before


def test_a_driver_without_a_version_has_no_specification(host: Path) -> None:
    report = writer(host).update(replace(ONE, driver_version=None), {}, [GPU])
    assert "the driver's version is unknown" in str(report.problem)
    assert written(host) == {}


def test_what_is_wrong_stays_so_while_nvml_says_nothing(host: Path) -> None:
    kept = writer(host)
    (host / "dev/nvidiactl").unlink()
    problem = kept.update(ONE, {}, [GPU]).problem
    assert problem is not None
    assert kept.update(replace(ONE, gpus=()), {}).problem is not None


def test_gpus_without_numbers_keep_the_written_file(host: Path) -> None:
    kept = writer(host)
    kept.update(ONE, {})
    before = written(host)
    nameless = replace(ONE, gpus=(replace(ONE.gpus[0], minor=None),))
    report = kept.update(nameless, {}, [GPU])
    assert "has no known minor number" in str(report.problem)
    assert report.devices == {GPU, "all"}
    assert written(host) == before


def test_a_host_without_the_toolkit_gets_a_specification_without_hooks(host: Path) -> None:
    (host / "usr/bin/nvidia-cdi-hook").unlink()
    (warning,) = writer(host).update(ONE, {}).warnings
    assert "no nvidia-cdi-hook" in warning
    (spec,) = written(host).values()
    assert "hooks" not in spec["containerEdits"]


def test_a_driver_root_that_is_not_there_has_no_library(host: Path) -> None:
    problem = writer(host, driver_root=Path("/run/none")).update(ONE, {}, [GPU]).problem
    assert f"no libcuda.so.{VERSION} was found below /run/none" in str(problem)


def test_channels_and_features_have_a_file_each_while_their_nodes_are_there(host: Path) -> None:
    nodes = ("nvidia-caps-imex-channels/channel0", "gdrdrv", "nvidia-fs0", "infiniband/uverbs0")
    add_nodes(host, *nodes)
    put(host, "/etc/cufile.json")
    vendor = "device-plugin.nodetopo.io"
    kept = writer(host, imex_channels=(0,), features=frozenset(Feature))
    assert kept.update(ONE, {}).warnings == ()
    found = written(host)
    classes = ("gpu", "imex-channel", "gdrcopy", "gds", "mofed")
    assert set(found) == {f"{vendor}/{name}" for name in classes}
    edits = found[f"{vendor}/gds"]["devices"][0]["containerEdits"]
    assert [one["path"] for one in edits["deviceNodes"]] == ["/dev/nvidia-fs0"]
    assert [one["hostPath"] for one in edits["mounts"]] == ["/etc/cufile.json"]
    for name in nodes:
        (host / "dev" / name).unlink()
    assert kept.update(ONE, {}).warnings == ()
    assert set(written(host)) == {f"{vendor}/gpu"}


def test_a_directory_that_takes_no_file_is_a_problem(host: Path) -> None:
    put(host, "/var/run/cdi")
    report = writer(host).update(ONE, {}, [GPU])
    assert report.devices == frozenset()
    assert "there is none, and 1 device is not handed out: cannot write" in str(report.problem)


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
