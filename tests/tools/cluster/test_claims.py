"""Why a claim got what it got."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.errors import DecodeError
from nodetopo.machines import bundled
from nodetopo.model.dra import PublishedDevice
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.dra import devices_of
from nodetopo.tools.cluster.claims.claim import Explained, Verdict, node_of
from nodetopo.tools.cluster.claims.explain import explained
from tests.tools.cluster.claimed import claim, exported, plain, same_numa_node
from tests.tools.cluster.export.dra_machines import slices

DGX = bundled.machine("dgx-1v")
HGX = bundled.machine("dgx-h100")


def published(
    snapshot: Snapshot, *nodes: str, nics: bool = False
) -> dict[str, tuple[PublishedDevice, ...]]:
    """Return what *nodes* publish, all like *snapshot*, in the order of their GPUs."""
    found = {}
    for node in nodes or ("n1",):
        each = slices(snapshot, node, nics=nics)
        each[0]["spec"]["devices"].sort(key=lambda device: device["name"])
        found[node] = devices_of(each)
    return found


def explain(
    which: dict[str, Any],
    others: Sequence[dict[str, Any]] = (),
    snapshot: Snapshot = DGX,
    **more: Any,
) -> Explained:
    return explained(which, published(snapshot, **more), [which, *others], snapshot)


def test_a_pair_without_an_nvlink_is_worse_than_one_with_two() -> None:
    found = explain(claim("job", plain(2), ["gpu-0", "gpu-5"]))
    assert (found.verdict, found.node, found.claim) == (Verdict.WORSE, "n1", "batch/job")
    assert found.was is not None
    assert found.best is not None
    assert (found.was.gpus, found.best.gpus) == ((0, 5), (0, 3))
    assert found.was.score.bandwidth_gb_s != found.best.score.bandwidth_gb_s == 50.0
    assert found.why[0].startswith("the set loses on ")
    assert "the request gpus has no alternatives to prefer some GPUs by" in found.why
    assert found.cures[0] == "claim by alternatives for this machine: `nodetopo export --for dra`"


def test_the_first_free_devices_in_the_order_of_the_slices_are_called_that() -> None:
    first = "its devices are the first free ones in the order of the slices"
    assert first in explain(claim("job", plain(2), ["gpu-0", "gpu-1"])).why
    assert first not in explain(claim("job", plain(2), ["gpu-0", "gpu-5"])).why


def test_what_others_had_before_was_not_free() -> None:
    job = claim("job", plain(2), ["gpu-0", "gpu-1"])
    others = [claim("other", plain(4), ["gpu-2", "gpu-3", "gpu-4", "gpu-5"], at=1)]
    found = explain(job, others)
    assert found.free == (0, 1, 6, 7)
    assert found.best is not None
    assert found.best.gpus == (6, 7)


def test_what_others_got_later_was_free() -> None:
    job = claim("job", plain(2), ["gpu-0", "gpu-1"])
    assert explain(job, [claim("other", plain(1), ["gpu-7"], at=9)]).free == tuple(range(8))
    # In the same second the order is not known.
    assert 7 not in explain(job, [claim("other", plain(1), ["gpu-7"], at=5)]).free


def test_without_times_all_others_count_as_earlier_and_that_is_said() -> None:
    job = claim("job", plain(2), ["gpu-0", "gpu-1"], at=None)
    found = explain(job, [claim("other", plain(1), ["gpu-7"], at=9)])
    assert 7 not in found.free
    assert found.unknown == ("when claims were allocated: all others count as allocated before it",)
    of_another = [claim("other", plain(1), ["gpu-7"], at=None)]
    timed = claim("job", plain(2), ["gpu-0", "gpu-1"])
    assert explain(timed, of_another).unknown == found.unknown
    assert explain(timed).unknown == ()


def test_claims_of_another_node_with_the_same_addresses_take_nothing_here() -> None:
    job = claim("job", plain(2), ["gpu-0", "gpu-1"])
    there = claim("other", plain(1), ["gpu-7"], node="n2", at=1)
    found = explained(job, published(DGX, "n1", "n2"), [there], DGX)
    assert found.free == tuple(range(8))


def test_admin_access_takes_nothing() -> None:
    other = claim("monitor", plain(1), ["gpu-7"], at=1)
    other["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    assert 7 in explain(claim("job", plain(2), ["gpu-0", "gpu-1"]), [other]).free


def test_a_claim_with_the_best_set_says_which_alternative_matched() -> None:
    spec = exported(DGX, 2)
    found = explain(claim("job", spec, ["gpu-1", "gpu-2"], request="gpus/gpu-1-2"))
    assert found.verdict is Verdict.BEST
    taken, verdict = found.why
    before = "the one before it could not be met by what was free"
    assert taken == f"gpus: alternative 2 of 8, gpu-1-2, was taken: {before}"
    assert verdict == "no set of GPUs that was free is better"
    (request,) = found.requests
    assert (request.matched, len(request.alternatives)) == ("gpu-1-2", 8)


def test_alternatives_of_another_machine_are_to_be_exported_again() -> None:
    spec = exported(HGX, 2)
    alternative = spec["devices"]["requests"][0]["firstAvailable"][0]["name"]
    found = explain(claim("job", spec, ["gpu-0", "gpu-1"], request=f"gpus/{alternative}"))
    assert found.verdict is Verdict.WORSE
    assert found.cures[0] == (
        "its alternatives are not those of this machine: `nodetopo export --for dra` again"
    )


def test_a_constraint_that_leaves_the_better_set_out_is_named() -> None:
    job = claim("job", same_numa_node(2), ["gpu-0", "gpu-1"])
    others = [claim("other", plain(4), ["gpu-2", "gpu-3", "gpu-6", "gpu-7"], at=1)]
    found = explain(job, others)
    assert found.best is not None
    assert found.best.gpus == (0, 4)
    attribute = "resource.kubernetes.io/numaNode"
    assert f"its constraint on {attribute} leaves the better set out" in found.why


def test_selectors_are_not_evaluated_and_may_be_the_reason() -> None:
    spec = plain(2, selectors=[{"cel": {"expression": "true"}}])
    found = explain(claim("job", spec, ["gpu-0", "gpu-1"]))
    assert "the selectors of gpus may leave the better set out" in found.why


def test_no_choice_where_no_other_gpus_were_free() -> None:
    names = [f"gpu-{number}" for number in range(8)]
    found = explain(claim("job", plain(8), names))
    assert (found.verdict, found.why) == (Verdict.NO_CHOICE, ("no other GPUs were free",))


def test_tainted_and_unpublished_gpus_were_not_free() -> None:
    job = claim("job", plain(2), ["gpu-0", "gpu-1"])
    (devices,) = published(DGX).values()
    tainted = [
        replace(device, taints=("gpu.nvidia.com/xid=:NoSchedule",))
        if device.name == "gpu-7"
        else device
        for device in devices
        if device.name != "gpu-6"
    ]
    assert explained(job, {"n1": tainted}, [], DGX).free == (0, 1, 2, 3, 4, 5)


def test_sets_of_our_own_driver_are_the_gpus_behind_them() -> None:
    def device(name: str, *gpus: int) -> PublishedDevice:
        counters = tuple(
            f"gpus/gpu-{str(DGX.gpus[at].pci).replace(':', '-').replace('.', '-')}" for at in gpus
        )
        return PublishedDevice(driver="nodetopo.io", pool="n1", name=name, counters=counters)

    devices = [device("a", 0, 3), device("b", 0, 5), *(device(f"s{at}", at) for at in range(8))]
    job = claim("job", plain(1), ["b"], driver="nodetopo.io")
    found = explained(job, {"n1": devices}, [], DGX)
    assert (found.gpus, found.verdict) == ((0, 5), Verdict.WORSE)


def test_mig_devices_are_not_compared() -> None:
    mig = PublishedDevice(
        driver="gpu.nvidia.com",
        pool="n1",
        name="gpu-0-mig-1",
        attributes={
            "gpu.nvidia.com/type": "mig",
            "gpu.nvidia.com/parentUUID": DGX.gpus[0].uuid or "",
        },
    )
    found = explained(claim("job", plain(1), ["gpu-0-mig-1"]), {"n1": [mig]}, [], DGX)
    assert found.verdict is Verdict.NO_CHOICE
    assert found.why == ("parts of GPUs are not compared: they do not disturb each other",)


def test_a_device_that_no_slice_has_is_unknown() -> None:
    found = explain(claim("job", plain(1), ["gpu-9"]))
    assert found.verdict is Verdict.UNKNOWN
    assert found.unknown[0] == "gpu.nvidia.com/n1/gpu-9 is in no slice of its node"


def test_without_a_machine_the_gpus_are_unknown() -> None:
    found = explained(claim("job", plain(1), ["gpu-0"]), published(DGX), [], None)
    assert found.verdict is Verdict.UNKNOWN


def test_a_lost_gpu_is_not_judged() -> None:
    gpus = (replace(DGX.gpus[0], is_lost=True), *DGX.gpus[1:])
    lost = replace(DGX, gpus=gpus)
    found = explained(claim("job", plain(2), ["gpu-0", "gpu-3"]), published(DGX), [], lost)
    assert (found.verdict, found.unknown) == (
        Verdict.UNKNOWN,
        ("what GPU0 was worth: it is lost now",),
    )


def test_each_nic_of_a_claim_is_next_to_a_gpu_of_it_or_not() -> None:
    spec = plain(1)
    job = claim("job", spec, ["gpu-7", "gpu-0"])
    nic = published(HGX, nics=True)["n1"][0]
    assert nic.driver == "dra.net"
    result = {"request": "nics", "driver": "dra.net", "pool": "n1", "device": nic.name}
    job["status"]["allocation"]["devices"]["results"].append(result)
    found = explain(job, snapshot=HGX, nics=True)
    ((hca, gpu, distance),) = found.nearest
    assert (hca, gpu) == (0, 0)
    assert distance is not None
    assert distance.name == "PXB"


def test_a_claim_of_a_nic_alone_has_no_gpus_to_compare() -> None:
    nic = published(HGX, nics=True)["n1"][0]
    job = claim("net", plain(1), [nic.name], driver="dra.net")
    found = explain(job, snapshot=HGX, nics=True)
    assert (found.verdict, found.why) == (Verdict.NO_CHOICE, ("it has no GPUs to compare",))


def test_a_waiting_claim_says_what_each_node_lacks() -> None:
    job = claim("job", same_numa_node(4))
    holder = claim("other", plain(2), ["gpu-0", "gpu-7"])
    found = explain(job, [holder])
    assert found.verdict is Verdict.WAITING
    (lack,) = found.lacks
    assert (lack.node, lack.wanted, lack.free, lack.in_use, lack.tainted) == ("n1", 4, 6, 2, 0)
    assert dict(lack.largest) == {"resource.kubernetes.io/numaNode": 3}
    assert lack.holders == ("batch/other",)
    assert found.why == ("gpus: no node has 4 devices free as it asks",)
    assert found.cures[0].startswith("alternatives take what is left")


def test_a_waiting_claim_that_would_fit_by_count_has_another_reason() -> None:
    found = explain(claim("job", plain(2)))
    assert found.lacks[0].is_enough
    assert found.why[0].startswith("by count n1 would do")


def test_tainted_devices_count_for_those_alone_that_tolerate_them() -> None:
    devices = {
        node: tuple(replace(it, taints=("key=value:NoSchedule",)) for it in own)
        for node, own in published(DGX).items()
    }
    refused = explained(claim("job", plain(1)), devices, [], None)
    assert (refused.lacks[0].free, refused.lacks[0].tainted) == (0, 8)
    toleration = [{"key": "key", "operator": "Exists"}]
    tolerated = explained(claim("job", plain(1, tolerations=toleration)), devices, [], None)
    assert (tolerated.lacks[0].free, tolerated.lacks[0].tainted) == (8, 0)


def test_a_class_that_no_driver_serves_is_named() -> None:
    spec = plain(1, deviceClassName="gpu.amd.com")
    found = explain(claim("job", spec))
    assert found.lacks == ()
    assert found.why == ("gpus: no node publishes devices that the class gpu.amd.com names",)


def test_the_node_is_the_selectors_or_else_that_of_the_pool() -> None:
    job = claim("job", plain(1), ["gpu-0"])
    assert node_of(job, {}) == "n1"
    del job["status"]["allocation"]["nodeSelector"]
    assert node_of(job, published(DGX)) == "n1"
    assert node_of(claim("job", plain(1)), published(DGX)) is None


def test_a_claim_without_requests_cannot_be_explained() -> None:
    with pytest.raises(DecodeError, match="without requests"):
        explain(claim("job", {"devices": {}}))
