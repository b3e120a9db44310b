"""Our DRA driver, step by step: when it publishes what, and when it does not."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from nodetopo.components.dra import loop as dra_loop
from nodetopo.components.dra.driver.claims import AllocatedDevice, ClaimReference
from nodetopo.components.dra.loop import DraLoop
from nodetopo.components.dra.publisher import AHEAD_S
from nodetopo.components.gpus.plugins import PluginSet
from nodetopo.errors import InputError
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kubeapi.slices import SliceWatch
from nodetopo.machines.bundled import machine
from nodetopo.model.dra import DRIVER
from nodetopo.model.gpu import Gpu
from nodetopo.model.gpu_health import GpuHealth, HealthView
from nodetopo.model.notice import Notice
from nodetopo.model.probe_issue import ProbeIssue
from tests.components.dra.fake_slices import FakeSliceApi
from tests.components.dra.test_held import Clock, Kubelet, by_claim, pod
from tests.components.gpus.plugin_sets import serving_node
from tests.tools.cluster.export.dra_machines import slices as nvidia_slices

DGX = machine("dgx-h100")
UUIDS = tuple(gpu.uuid or "" for gpu in DGX.gpus)
IDS = tuple(gpu.id for gpu in DGX.gpus)
HELD = "nodetopo.io/held"


class Health:
    """The verdicts of the health monitor."""

    def __init__(self) -> None:
        self.view: HealthView = {}


class Node:
    """One daemon's driver, beside an API server and a kubelet."""

    def __init__(
        self,
        loop: DraLoop,
        api: FakeSliceApi,
        kubelet: Kubelet,
        health: Health,
        notices: list[Notice],
    ) -> None:
        self.loop = loop
        self.api = api
        self.kubelet = kubelet
        self.health = health
        self.notices = notices

    def settle(self, steps: int = 4) -> None:
        """Run some steps, each with the watch's news."""
        for _ in range(steps):
            self.loop.step()
            self.api.show()

    def tainted(self, key: str) -> set[str]:
        """Return the published devices with a taint."""
        return {
            name
            for name, device in self.api.devices.items()
            if any(taint["key"] == key for taint in device.get("taints", ()))
        }

    @property
    def reasons(self) -> list[str]:
        """Return the reasons of what was reported."""
        return [notice.reason for notice in self.notices]

    def allocate(self, uid: str, *devices: str) -> ClaimReference:
        """Have the scheduler allocate *devices* to a claim."""
        found = tuple(AllocatedDevice(request="gpus", device=name) for name in devices)
        self.loop.prepared._read = lambda _: found
        return ClaimReference(uid=uid, namespace="ml", name=uid)

    def unhealthy(self, position: int) -> None:
        """Let a GPU turn unhealthy."""
        verdict = GpuHealth(is_healthy=False, reason="Xid79", said="it fell off the bus")
        self.health.view = {IDS[position]: verdict}


Start = Callable[..., Node]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "registry").mkdir()
    return tmp_path


@pytest.fixture
def api() -> FakeSliceApi:
    return FakeSliceApi(SliceWatch(None, "n"))


@pytest.fixture
def start(home: Path, api: FakeSliceApi, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Return what starts a process of the node; all see the same API server."""
    monkeypatch.setattr(dra_loop, "connection", lambda _: lambda: api)
    with serving_node(dra=True) as served:
        served.plugins.take(DGX)
        served.plugins.cdi_names = lambda uuids: tuple(f"k={it}" for it in uuids)  # type: ignore[method-assign]
        loops: list[DraLoop] = []

        def starting(*, is_off: bool = False, is_answered: bool = True, **settings: Any) -> Node:
            chosen = Settings(
                node_name="n",
                dra=not is_off,
                plugins_registry_dir=home / "registry",
                device_plugin_dir=home,
                **settings,
            )
            kubelet, health, notices = Kubelet(), Health(), list[Notice]()
            watched: Any = health
            loop = DraLoop(
                chosen,
                served.plugins,
                watched,
                api._watch,
                state_file=home / "claims.json",
                report=notices.extend,
                is_off=is_off,
            )
            kubelet.pods = () if is_answered else None
            asked: Any = kubelet
            loop._held._kubelet = asked
            loop.step()
            loop._server.registrar.is_registered = True
            loops.append(loop)
            return Node(loop, api, kubelet, health, notices)

        yield starting
        for loop in loops:
            loop.close()


@contextmanager
def later(start: Start, first: Node, **settings: Any) -> Iterator[Node]:
    """Yield a process whose socket is newer than that of *first*."""
    second = start(**settings)
    while first.loop._server.newer() is None:  # the clock of the file system has not ticked
        second.loop._server.path.unlink()
        second.loop.step()
        second.loop._server.registrar.is_registered = True
    yield second


def test_nothing_is_published_before_it_is_known_which_gpus_pods_have(
    start: Start, api: FakeSliceApi
) -> None:
    node = start(is_answered=False)
    api.show()
    node.settle()
    assert api.slices == {}
    assert "GPUs in use not known: the kubelet is busy" in (node.loop.not_served or "")
    node.kubelet.pods = [pod(UUIDS[0])]
    node.settle()
    assert "gpu-1b" in node.tainted(HELD)
    assert node.loop.not_served is None


def test_slices_of_the_process_before_are_held_until_it_is_known(
    start: Start, api: FakeSliceApi
) -> None:
    api.show()
    start().settle()
    node = start(is_answered=False)
    node.settle()
    assert node.tainted(HELD) == set(api.devices)
    node.kubelet.pods = []
    node.settle()
    assert node.tainted(HELD) == set()


def test_no_claim_is_prepared_before_it_is_known(start: Start, api: FakeSliceApi) -> None:
    node = start(is_answered=False)
    api.show()
    node.settle()
    with pytest.raises(InputError, match="it is not known which GPUs pods have"):
        node.loop.prepared.prepare(node.allocate("1", "gpu-1b"))


def test_a_gpu_that_a_device_plugin_has_just_given_out_is_not_prepared(
    start: Start, api: FakeSliceApi
) -> None:
    node = start()
    api.show()
    node.settle()
    single = next(name for name in api.devices if api.devices[name]["attributes"]["uuid"])
    uuid = api.devices[single]["attributes"]["uuid"]["string"]
    node.kubelet.pods = [pod(uuid)]
    with pytest.raises(InputError, match=f"a pod has {uuid} by a device plugin"):
        node.loop.prepared.prepare(node.allocate("1", single))


def test_another_drivers_gpus_are_tainted_reported_and_not_prepared(
    start: Start, api: FakeSliceApi
) -> None:
    node = start()
    api.show()
    node.settle()
    (theirs,) = nvidia_slices(DGX, "n")
    api.slices["theirs"] = theirs
    api.show()
    node.settle()
    assert node.tainted("nodetopo.io/published-twice") == set(api.devices)
    assert node.reasons == ["GpusPublishedTwice"]
    assert node.loop.foreign_gpus == 8
    node.kubelet.pods = [pod(claimed=(by_claim("gpu.nvidia.com"),))]  # of their gpu-0
    with pytest.raises(InputError, match=r"by a claim of the DRA driver gpu\.nvidia\.com"):
        node.loop.prepared.prepare(node.allocate("1", "gpu-1b"))
    node.loop.prepared.prepare(node.allocate("2", "gpu-43"))
    node.kubelet.pods = []
    del api.slices["theirs"]
    api.show()
    node.settle()
    assert node.tainted("nodetopo.io/published-twice") == set()
    assert node.reasons == ["GpusPublishedTwice", "GpusPublishedOnce"]


@pytest.mark.parametrize("wanted", ["auto", "sets"])
def test_a_server_that_drops_fields_gets_single_gpus_and_is_written_to_once(
    start: Start, api: FakeSliceApi, wanted: str
) -> None:
    api.off = {"sharedCounters", "consumesCounters", "taints", "lists"}
    node = start(dra_devices=wanted)
    api.show()
    node.settle(8)
    assert api.types == {"gpu"}
    node.unhealthy(0)
    node.settle(8)
    assert len(api.devices) == 7, "a device that cannot be tainted is left out"
    verdict = node.loop._device_health._verdicts["gpu-1b"]
    assert (verdict.is_healthy, verdict.message) == (False, "it fell off the bus")
    writes = list(api.writes)
    node.settle(20)
    assert api.writes == writes
    assert node.reasons.count("SliceFieldsDropped") <= 2
    assert "SliceFieldsDropped" in node.reasons
    assert node.loop.not_served is None, "the other GPUs are served"
    node.health.view = {}
    node.settle()
    assert len(api.devices) == 8


def test_nothing_that_overlaps_is_ever_stored_where_counters_are_dropped(
    start: Start, api: FakeSliceApi
) -> None:
    api.off = {"sharedCounters", "consumesCounters"}
    node = start(dra_devices="sets")
    api.show()
    for _ in range(8):
        node.settle(1)
        assert api.types <= {"gpu"}


def test_the_gates_are_looked_at_again_with_another_version(
    start: Start, api: FakeSliceApi
) -> None:
    api.off = {"sharedCounters", "consumesCounters"}
    node = start(dra_devices="sets")
    api.show()
    node.settle(8)
    api.off, api.version = set(), "v1.36.4"
    node.loop._watch.connections += 1
    node.settle(8)
    assert "gpu-set" in api.types
    assert node.reasons[-1] == "SliceFieldsKept"


@pytest.mark.parametrize("form", ["gpus", "sets"])
def test_a_server_without_lists_costs_nothing_but_the_lists(
    start: Start, api: FakeSliceApi, form: str
) -> None:
    api.off = {"lists"}
    node = start(dra_devices=form)
    api.show()
    node.settle(8)
    assert ("gpu-set" in api.types) is (form == "sets")
    assert node.loop.dropped == {"lists"}
    assert node.reasons == []
    assert api.devices["gpu-1b"]["attributes"]["resource.kubernetes.io/numaNode"] == {"int": 0}


def test_fields_that_a_newer_server_adds_are_no_reason_to_write(
    start: Start, api: FakeSliceApi
) -> None:
    api.extra = {"skipNodeOperations": False}
    node = start()
    api.show()
    node.settle(8)
    writes = list(api.writes)
    node.settle(8)
    again = start()
    again.settle(8)
    assert api.writes == writes


@pytest.mark.parametrize(("release", "has_sets"), [("v1.36.3", False), ("v1.37.1", True)])
def test_the_release_decides_on_sets(
    start: Start, api: FakeSliceApi, release: str, has_sets: bool
) -> None:
    api.version = release
    node = start()
    api.show()
    node.settle(8)
    assert ("gpu-set" in api.types) is has_sets


def test_gpus_of_a_claimed_set_stay_out_of_reach_where_sets_are_no_longer_published(
    start: Start, api: FakeSliceApi
) -> None:
    sets = start(dra_devices="sets")
    api.show()
    sets.settle(8)
    name = next(it for it in api.devices if it.startswith("gpus-") and it.count("-") == 2)
    claim = sets.loop.prepared.prepare(sets.allocate("1", name))
    used = {gpu for device in claim.devices for gpu in device.gpus}
    sets.loop.close()

    node = start(dra_devices="gpus")
    node.settle(8)
    free = {it["attributes"]["uuid"]["string"] for it in api.devices.values()}
    assert free == {gpu.uuid for gpu in DGX.gpus if gpu.id not in used}
    node.loop.prepared.unprepare("1")
    node.settle(8)
    assert len(api.devices) == 8
    other = node.loop.prepared.prepare(node.allocate("2", name))
    assert other.devices[0].device == name, "allocated before the form changed"


def test_taints_keep_their_time_over_a_restart(start: Start, api: FakeSliceApi) -> None:
    node = start()
    api.show()
    node.unhealthy(0)
    node.settle(8)
    for each in api.slices.values():
        for device in each["spec"].get("devices", ()):
            for taint in device.get("taints", ()):
                taint["timeAdded"] = "2026-01-01T00:00:00Z"
    stored = {name: dict(it) for name, it in api.devices.items()}
    api._watch.slices = None
    again = start()
    again.unhealthy(0)
    again.settle(1)
    api.show()
    again.settle(8)
    assert api.devices == stored


def test_news_of_one_write_before_the_other_are_no_reason_to_write_again(
    start: Start, api: FakeSliceApi
) -> None:
    node = start(dra_devices="sets")
    api.show()
    node.settle(8)
    other = start(dra_devices="gpus")
    node.loop.close()
    before = dict(api.slices)
    other.loop.step()
    after, writes = dict(api.slices), len(api.writes)
    assert before.keys() > after.keys(), "counters are gone"
    api._watch._publish({**before, **after})  # the one that is deleted comes last
    other.loop.step()
    assert len(api.writes) == writes
    api.show()
    other.settle(4)
    assert len(api.writes) == writes
    api.slices.clear()  # as a kubelet does that starts
    api.show()
    other.settle(4)
    assert len(api.writes) == writes + 1


def test_slices_that_vanish_before_the_watch_shows_them_are_written_again(
    start: Start, api: FakeSliceApi
) -> None:
    node = start()
    clock = Clock()
    node.loop._publisher._clock = clock
    api.show()
    node.loop.step()
    assert api.slices
    api.slices.clear()
    node.loop.step()
    assert not api.slices, "the watch is late, perhaps"
    clock.now += AHEAD_S + 1
    node.settle()
    assert api.slices


def test_a_claim_that_comes_before_the_first_scan_waits_for_it(
    start: Start, api: FakeSliceApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = start()
    api.show()
    node.settle()
    node.loop.prepared.prepare(node.allocate("1", "gpu-1b"))
    node.loop.close()
    plugins = node.loop._plugins
    scanned = plugins.published
    monkeypatch.setattr(plugins, "published", None)
    again = start()
    done: list[str] = []
    claim = again.allocate("2", "gpu-43")
    asking = threading.Thread(target=lambda: done.append(again.loop.prepared.prepare(claim).uid))
    asking.start()
    monkeypatch.setattr(plugins, "published", scanned)
    again.settle()
    asking.join(60)
    assert done == ["2"]


def test_slices_stay_until_nvml_was_read_by_the_process_that_renews_them(
    start: Start, api: FakeSliceApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that starts while the driver must be free knows the GPUs of its file alone."""
    node = start()
    api.show()
    node.settle()
    node.loop.close()
    before, plugins = dict(api.devices), cast("PluginSet", node.loop._plugins)
    assert plugins.has_read
    assert plugins.published is not None
    bare = tuple(Gpu(index=gpu.index, uuid=gpu.uuid) for gpu in plugins.published.gpus)
    monkeypatch.setattr(plugins, "_gpus", bare)
    monkeypatch.setattr(plugins, "has_read", False)
    closed = ProbeIssue(probe="nvml", subject="", reason="closed")
    plugins.take(replace(DGX, gpus=(), issues=(closed,)))
    again = start()
    again.settle()
    assert api.devices == before
    plugins.take(DGX)
    again.settle()
    assert plugins.has_read
    assert api.devices.keys() == before.keys()


@pytest.mark.parametrize("off", ["", "lists"])
def test_a_restart_writes_nothing(start: Start, api: FakeSliceApi, off: str) -> None:
    api.off = {off} - {""}
    for form in ("gpus", "sets"):
        node = start(dra_devices=form)
        api.show()
        node.settle(8)
        name = next(it for it in api.devices if it.startswith("gpu-"))
        if not node.loop.prepared.claims:
            node.loop.prepared.prepare(node.allocate("1", name))
        node.settle(8)
        writes, tries = list(api.writes), list(api.tries)
        node.loop.close()
        again = start(dra_devices=form)
        again.settle(8)
        assert (api.writes, api.tries) == (writes, tries)
        again.loop.close()


def test_the_older_of_two_processes_writes_nothing_until_the_newer_one_ends(
    start: Start, api: FakeSliceApi
) -> None:
    old = start(dra_devices="sets")
    api.show()
    old.settle(8)
    with later(start, old, dra_devices="gpus") as new:
        for _ in range(8):
            new.settle(1)
            old.settle(1)
        assert api.types == {"gpu"}
        writes = list(api.writes)
        for _ in range(8):
            new.settle(1)
            old.settle(1)
        assert api.writes == writes
        assert old.loop.not_served is None
        new.loop.close()
    old.settle(8)
    assert "gpu-set" in api.types


def test_a_driver_that_is_off_withdraws_its_slices_and_ends_with_the_last_claim(
    start: Start, api: FakeSliceApi, home: Path
) -> None:
    node = start()
    api.show()
    node.settle()
    name = next(iter(api.devices))
    node.loop.prepared.prepare(node.allocate("1", name))
    node.loop.close()

    off = start(is_off=True)
    off.settle()
    assert api.slices == {}
    assert off.loop.is_registered
    assert off.loop.not_served is None
    home.joinpath("registry").rename(home / "away")
    off.settle()
    assert "claims are left and not given up: no directory" in (off.loop.not_served or "")
    home.joinpath("away").rename(home / "registry")
    off.settle()
    with pytest.raises(InputError, match="dra is off on this node"):
        off.loop.prepared.prepare(off.allocate("2", name))
    assert off.loop.prepared.unprepare("1")
    assert off.loop.step() is None


def test_a_driver_that_is_off_waits_for_pods_whose_claims_are_not_known(
    start: Start, home: Path
) -> None:
    (home / "claims.json").write_text("{")
    off = start(is_off=True, is_answered=False)
    assert off.reasons == ["StateFileUnusable"]
    assert off.loop.step() is not None
    off.kubelet.pods = [pod(claimed=(by_claim(DRIVER),))]
    assert off.loop.step() is not None
    off.kubelet.pods = ()
    off.loop._held.look()
    assert off.loop.step() is None


def test_without_a_scan_claims_are_given_up_all_the_same(
    start: Start, api: FakeSliceApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = start()
    api.show()
    node.settle()
    name = next(iter(api.devices))
    node.loop.prepared.prepare(node.allocate("1", name))
    node.loop.close()
    monkeypatch.setattr(node.loop._plugins, "published", None)
    again = start()
    again.settle()
    assert again.loop._server.path.exists()
    assert again.loop.prepared.unprepare("1")


def test_a_lost_gpu_is_unhealthy(start: Start, api: FakeSliceApi) -> None:
    node = start()
    api.show()
    lost = replace(DGX, gpus=(replace(DGX.gpus[0], is_lost=True), *DGX.gpus[1:]))
    node.loop._plugins.published = lost  # type: ignore[misc]
    node.settle(8)
    assert node.tainted("nodetopo.io/unhealthy")


def test_the_counters_of_a_claimed_set_outlive_one_of_its_gpus(
    start: Start, api: FakeSliceApi
) -> None:
    node = start(dra_devices="sets")
    api.show()
    node.settle(8)
    name = next(it for it in api.devices if it.startswith("gpus-") and it.count("-") == 2)
    consumed = api.devices[name]["consumesCounters"][0]["counters"]
    claim = node.loop.prepared.prepare(node.allocate("1", name))
    gone = claim.devices[0].gpus[0]
    node.loop.close()

    again = start(dra_devices="sets")
    smaller = replace(DGX, gpus=tuple(gpu for gpu in DGX.gpus if gpu.id != gone))
    again.loop._plugins.published = smaller  # type: ignore[misc]
    again.settle(8)
    left = api.devices[name]["consumesCounters"][0]["counters"]
    assert left.keys() < consumed.keys()
    assert left.keys() != {"count"}
    again.loop.prepared.unprepare("1")
    again.settle(8)
    assert name not in api.devices


def test_a_prepared_claim_takes_what_overlaps_out_of_the_slices_by_one_write(
    start: Start, api: FakeSliceApi
) -> None:
    node = start(dra_devices="sets")
    api.show()
    node.settle(8)
    before, writes = dict(api.devices), len(api.writes)
    name = next(it for it in before if it.startswith("gpus-") and it.count("-") == 4)
    buses = set(name.split("-")[1:])
    node.loop.prepared.prepare(node.allocate("1", name))
    node.settle(8)
    gone = {it for it in before if buses & set(it.split("-")[1:]) and it[:4] in ("gpu-", "gpus")}
    assert api.devices.keys() == before.keys() - (gone - {name})
    assert len(api.writes) == writes + 1
    node.loop.prepared.unprepare("1")
    node.settle(8)
    assert api.devices == before
    assert len(api.writes) == writes + 2
