"""Which GPUs the device plugin offers beside DRA drivers, and for our own."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.components.dra.neighbours import DraNeighbours
from nodetopo.components.gpus.offer_notices import OfferNotices
from nodetopo.components.gpus.reconcile_loop import ReconcileLoop
from nodetopo.errors import ApiUnavailable, UnreadableError
from nodetopo.kubeapi.slices import SliceWatch
from nodetopo.machines.bundled import machine
from nodetopo.model.notice import Notice
from nodetopo.topology.neighbours import NOBODY, ServedByDra
from tests.components.gpus.plugin_sets import serving_node
from tests.deviceplugin.eventually import eventually
from tests.kernel.running import kernel_of
from tests.tools.cluster.export.dra_machines import slices

DGX = machine("dgx-h100")
GPU = "nvidia.com/gpu"
HALF = ServedByDra(gpus={gpu.id: "gpu.nvidia.com" for gpu in DGX.gpus[:4]})
ALL = ServedByDra(gpus={gpu.id: "gpu.nvidia.com" for gpu in DGX.gpus})


def test_gpus_of_another_driver_are_withdrawn_and_come_back() -> None:
    with serving_node() as served:
        served.plugins.take(DGX)
        assert served.listed(GPU) == {GPU: 8}
        served.plugins.take(DGX, served_by_dra=HALF)
        assert eventually(lambda: served.listed(GPU) == {GPU: 4})
        assert {it.id for it in served.plugins.served[0].resource.devices} == {
            gpu.id for gpu in DGX.gpus[4:]
        }
        assert "4 GPUs are published" in served.plugins.refusals[-1].reason
        served.plugins.take(DGX, served_by_dra=ALL)
        assert served.lacks(GPU)
        assert served.plugins.is_registered, "there is nothing to wait for"
        served.plugins.take(DGX, served_by_dra=NOBODY)
        assert eventually(lambda: served.listed(GPU) == {GPU: 8})


def test_a_resource_that_a_class_gives_to_a_driver_is_withdrawn_whole() -> None:
    with serving_node() as served:
        by_class = ServedByDra(gpus=dict(HALF.gpus), resources={GPU: "gpu.nvidia.com"})
        served.plugins.take(DGX, served_by_dra=by_class)
        assert served.plugins.served == ()


def test_what_is_withdrawn_for_a_class_stays_withdrawn_and_other_classes_are_not_named() -> None:
    taken = {GPU: "gpu.nvidia.com", "other.com/nic": "nics"}
    with serving_node() as served:
        served.plugins.take(DGX, served_by_dra=ServedByDra(resources=taken))
        for _ in range(2):
            assert dict(served.plugins.served_by_dra.resources) == {GPU: "gpu.nvidia.com"}
            served.plugins.look_again()
            served.plugins.take(DGX, served_by_dra=ServedByDra(resources=taken))
        (refusal,) = served.plugins.refusals
        assert "gpu.nvidia.com gives nvidia.com/gpu to a DRA driver" in refusal.reason
        only_nics = ServedByDra(resources={"other.com/nic": "nics"})
        served.plugins.take(DGX, served_by_dra=only_nics)
        assert served.listed(GPU) == {GPU: 8}
        assert not served.plugins.served_by_dra


def test_always_never_steps_back() -> None:
    with serving_node(offer_gpus="always") as served:
        served.plugins.take(DGX, served_by_dra=ALL)
        assert served.listed(GPU) == {GPU: 8}
        assert served.plugins.served_by_dra == NOBODY


def test_our_own_driver_leaves_no_gpu_to_the_device_plugin() -> None:
    with serving_node(dra=True) as served:
        served.plugins.take(DGX)
        assert served.plugins.served == ()
        published = served.plugins.published
        assert published is not None
        assert len(published.gpus) == 8
        served.plugins.take(DGX)
        assert served.plugins.published is published, "nothing new"


def test_a_gpu_without_a_cdi_specification_cannot_be_prepared() -> None:
    with (
        serving_node(dra=True) as served,
        pytest.raises(UnreadableError, match="no CDI specification of ours has GPU-x"),
    ):
        served.plugins.cdi_names(["GPU-x"])


class Beside:
    """The reconcile loop of a node, beside NVIDIA's driver; nothing but its steps runs."""

    def __init__(self, plugins: Any, directory: Path) -> None:
        self.reported: list[Notice] = []
        self.kernel = kernel_of(directory)
        self.wake, self.store = self.kernel.wake, self.kernel.store
        self.watch = SliceWatch(None, "n")
        self.watch.subscribe(self.wake.set)
        self.kernel.claims = DraNeighbours(self.watch, self.no_api, directory, tuple)
        self._plugins, self._notices = plugins, OfferNotices()
        self.loop = ReconcileLoop(self.kernel, plugins, health=None, notices=self.notices)

    def notices(self) -> list[Notice]:
        """Return what is new, and keep it."""
        new = [*self._notices.of_dra(self._plugins.served_by_dra)]
        self.reported += new
        return new

    @staticmethod
    def no_api() -> Any:
        """Raise, as where there is no API server."""
        raise ApiUnavailable("no API server")

    def publish(self, *found: dict[str, Any]) -> None:
        """Have these slices and no others."""
        self.watch._publish({it["metadata"]["name"]: it for it in found})

    @property
    def reasons(self) -> list[str]:
        """The reasons of the notices, in their order."""
        return [notice.reason for notice in self.reported]


def test_slices_wake_the_loop_which_withdraws_the_gpus_and_says_so(tmp_path: Path) -> None:
    with serving_node() as served:
        beside = Beside(served.plugins, tmp_path)
        beside.store.publish(DGX)
        beside.loop.step()
        assert served.listed(GPU) == {GPU: 8}
        beside.publish(*slices(DGX, "n"))
        assert beside.wake.is_set()
        beside.loop.step()
        beside.loop.step()
        assert (served.plugins.served, beside.reasons) == ((), ["GpusServedByDra"])
        beside.publish()
        beside.loop.step()
        assert served.listed(GPU) == {GPU: 8}
        assert beside.reasons == ["GpusServedByDra", "GpusOfferedAgain"]


def test_a_lost_gpu_of_another_driver_is_not_offered_either(tmp_path: Path) -> None:
    with serving_node() as served:
        beside = Beside(served.plugins, tmp_path)
        beside.store.publish(DGX)
        beside.publish(*slices(DGX, "n"))
        beside.loop.step()
        assert served.plugins.served == ()
        beside.store.publish(replace(DGX, gpus=DGX.gpus[1:]))
        for _ in range(2):
            beside.loop.step()
            assert served.plugins.served == ()
