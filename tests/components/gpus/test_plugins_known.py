"""What a set of plugins remembers, writes, and leaves undone once it has stopped."""

import errno
import json
from pathlib import Path

from msgspec.structs import replace

from nodetopo.components.gpus.plan import load_table
from nodetopo.components.gpus.plugins import PluginSet
from nodetopo.components.gpus.state_files import KnownGpus
from nodetopo.deviceplugin.cdi import OWN_KIND
from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from nodetopo.kernel.settings.declare import Settings
from nodetopo.machines.bundled import machine
from nodetopo.model.gpu_health import GpuHealth
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.deviceplugin.driver_tree import add_nodes, install
from tests.failing_files import failing
from tests.generous_deadlines import use_generous_deadlines

__all__ = ["use_generous_deadlines"]

WAIT_S = 60.0
L40S = machine("l40s-pcie-4")


def plugin_set(directory: Path, boot: str = "boot-1", **more: str | bool | Path) -> PluginSet:
    """Return a set of plugins that remembers GPUs in *directory*, where the kubelet is as well."""
    values = {"node_name": "n", "device_plugin_dir": directory, "host_root": directory, **more}
    settings = Settings(**values)
    known = KnownGpus(directory / "gpus.json", boot)
    return PluginSet(settings, directory, load_table(settings), known=known)


def without(*gpus: int) -> Snapshot:
    """Return the machine as a driver shows it that has lost *gpus* before it was asked."""
    return replace(L40S, gpus=tuple(gpu for gpu in L40S.gpus if gpu.index not in gpus))


def listed(directory: Path, snapshot: Snapshot, boot: str = "boot-1") -> dict[str, bool]:
    """Return what a process that begins now offers: ids, and whether they are healthy."""
    plugins = plugin_set(directory, boot)
    with FakeKubelet(directory) as kubelet:
        try:
            plugins.take(snapshot)
            devices = kubelet.wait_registered(WAIT_S).devices
        finally:
            plugins.stop()
    return {device.id: device.is_healthy for device in devices}


def test_a_gpu_that_is_lost_when_a_new_process_begins_stays_in_the_capacity(
    tmp_path: Path,
) -> None:
    before = listed(tmp_path, L40S)
    after = listed(tmp_path, without(2))

    assert list(after) == list(before)
    assert [name for name, is_healthy in after.items() if not is_healthy] == [L40S.gpus[2].id]


def test_a_process_that_begins_while_nvml_is_closed_offers_the_gpus_it_remembers(
    tmp_path: Path,
) -> None:
    before = listed(tmp_path, L40S)
    closed = ProbeIssue(probe="nvml", subject="", reason="closed")
    assert listed(tmp_path, replace(L40S, gpus=(), issues=(closed,))) == before


def test_gpus_that_a_start_cannot_read_are_remembered_later(tmp_path: Path) -> None:
    listed(tmp_path, L40S)
    path = tmp_path / "gpus.json"
    document = path.read_text()
    with failing(path, errno.EIO, reads=True, writes=False):
        plugins = plugin_set(tmp_path)
        plugins.take(without(0, 2))
    assert path.read_text() == document
    plugins.take(without(2))
    plugins.stop()
    assert plugins.published is not None
    lost = {gpu.id: gpu.is_lost for gpu in plugins.published.gpus}
    assert lost == {gpu.id: gpu.index == 2 for gpu in L40S.gpus}
    assert path.read_text() == document


def test_a_gpu_that_is_gone_after_a_boot_is_gone(tmp_path: Path) -> None:
    listed(tmp_path, L40S)
    assert list(listed(tmp_path, without(2), boot="boot-2")) == [gpu.id for gpu in without(2).gpus]


def test_what_containers_are_to_find_is_written_before_devices_are_offered(
    tmp_path: Path,
) -> None:
    assert L40S.driver_version is not None
    install(tmp_path, version=L40S.driver_version)
    add_nodes(tmp_path, "nvidiactl", "nvidia-uvm", *(f"nvidia{n}" for n in range(8)))
    places = {"cdi_spec_dir": Path("/cdi"), "nccl_hints_dir": Path("/nccl")}
    plugins = plugin_set(
        tmp_path, "boot-1", cdi_spec="write", cdi_kind=OWN_KIND, nccl_hints=True, **places
    )
    found: list[set[str]] = []

    class Watching(FakeKubelet):
        """A kubelet that looks at the host when a resource comes."""

        def connect(self, resource: str, path: Path) -> None:
            """Note which files there are, and go on."""
            files = (*tmp_path.glob("cdi/*.json"), *tmp_path.glob("nccl/*"))
            found.append({file.parent.name for file in files})
            super().connect(resource, path)

    with Watching(tmp_path) as kubelet:
        try:
            plugins.take(L40S)
            kubelet.wait_registered(WAIT_S)
            names = kubelet.allocate([L40S.gpus[0].id]).cdi_devices
        finally:
            plugins.stop()

    (specification,) = map(json.loads, (file.read_text() for file in tmp_path.glob("cdi/*.json")))
    assert found == [{"cdi", "nccl"}]
    assert [name.partition("=")[0] for name in names] == [specification["kind"]]


def test_after_a_stop_nothing_is_offered_any_more(tmp_path: Path) -> None:
    plugins = plugin_set(tmp_path)
    plugins.stop()
    plugins.take(L40S)
    assert (plugins.served, [*tmp_path.glob("*.sock")]) == ((), [])


def test_degraded_gpus_are_offered_and_chosen_last(tmp_path: Path) -> None:
    plugins = plugin_set(tmp_path)
    worn = L40S.gpus[0].id
    with FakeKubelet(tmp_path) as kubelet:
        try:
            plugins.take(L40S, {worn: GpuHealth(is_degraded=True, reason="Xid63")})
            view = kubelet.wait_registered(WAIT_S)
            chosen = {size: kubelet.preferred(size) for size in (1, 2, 3, 4)}
        finally:
            plugins.stop()
    assert all(device.is_healthy for device in view.devices)
    assert [size for size, ids in chosen.items() if worn in ids] == [4]
