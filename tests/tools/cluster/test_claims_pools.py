"""What keeps a claim waiting beside the counts, and claims of which no set is compared."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.machines import bundled
from nodetopo.model.dra import PublishedDevice, PublishedPool
from nodetopo.probes.dra import devices_of
from nodetopo.tools.cluster.claims.claim import Explained, Pools, Verdict
from nodetopo.tools.cluster.claims.explain import explained
from tests.tools.cluster.claimed import claim, plain, same_numa_node
from tests.tools.cluster.export.drivers import Json, channels, nvidia_gpus

HGX = bundled.machine("dgx-h100")
WHOLE = PublishedPool(driver="gpu.nvidia.com", name="n1", nodes=("n1",), slices=1, expected=1)


def published(*more: Json, lists: bool = False) -> tuple[PublishedDevice, ...]:
    gpus = nvidia_gpus(HGX, "n1", "main, lists" if lists else "main")
    gpus["spec"]["devices"].sort(key=lambda device: device["name"])
    return devices_of([gpus, *more])


def wait(
    which: dict[str, Any], pools: Pools | None = None, *others: dict[str, Any], **more: Any
) -> Explained:
    return explained(which, {"n1": published(**more)}, others, None, pools=pools)


def test_a_pool_that_lacks_slices_is_the_one_certain_reason() -> None:
    lacking = replace(WHOLE, expected=2)
    found = wait(claim("job", plain(1)), Pools(known=(lacking,)))
    assert found.why[0] == (
        "the pool n1 of gpu.nvidia.com on n1 has 1 of its 2 slices: nothing is allocated of it"
    )
    assert (found.lacks[0].free, found.lacks[0].is_enough) == (0, False)
    assert found.cures[0] == ("see why the driver gpu.nvidia.com on n1 does not publish the rest")


def test_pools_of_other_drivers_are_not_in_the_way() -> None:
    other = PublishedPool(driver="dra.net", name="n1", slices=1, expected=2)
    found = wait(claim("job", plain(1)), Pools(known=(WHOLE, other)))
    assert found.why[0].startswith("by count n1 would do")


@pytest.mark.parametrize("by", ["nodeSelector", "allNodes", "perDeviceNodeSelection"])
def test_pools_of_nodes_that_are_not_known_are_named_as_what_they_are(by: str) -> None:
    pool = PublishedPool(driver="gpu.nvidia.com", name="rack", selects_by=(by,), devices=16)
    found = explained(claim("job", plain(1)), {}, [], None, pools=Pools(unplaced=(pool,)))
    what = f"has 16 devices for nodes by {by}, which are not counted here"
    assert found.why == (f"the pool rack of gpu.nvidia.com {what}",)


def test_compatibility_groups_are_named() -> None:
    found = wait(claim("job", plain(1)), Pools(known=(replace(WHOLE, has_groups=True),)))
    assert "DRADeviceCompatibilityGroups" in found.why[0]


def test_lists_are_equal_in_each_of_their_values() -> None:
    found = wait(claim("job", same_numa_node(4)), lists=True)
    assert dict(found.lacks[0].largest) == {"resource.kubernetes.io/numaNode": 4}


def shared(name: str, *, of: str = "80Gi") -> PublishedDevice:
    return PublishedDevice(
        driver="gpu.nvidia.com",
        pool="n1",
        name=name,
        attributes={"gpu.nvidia.com/type": "gpu", "gpu.nvidia.com/uuid": HGX.gpus[0].uuid or ""},
        capacity={"gpu.nvidia.com/memory": of},
        is_shared=True,
    )


def holder(name: str, device: str, memory: str) -> dict[str, Any]:
    found = claim(name, plain(1), [device])
    (result,) = found["status"]["allocation"]["devices"]["results"]
    result |= {"consumedCapacity": {"memory": memory}, "shareID": "a"}
    return found


@pytest.mark.parametrize(
    ("wanted", "free"), [("40Gi", 1), ("41Gi", 0), (None, 1)], ids=["rest", "more", "any"]
)
def test_half_a_gpu_in_use_is_not_a_gpu_in_use(wanted: str | None, free: int) -> None:
    capacity = {} if wanted is None else {"capacity": {"requests": {"memory": wanted}}}
    job = claim("job", plain(1, **capacity))
    devices = {"n1": (shared("gpu-0"),)}
    found = explained(job, devices, [holder("other", "gpu-0", "40Gi")], None)
    assert (found.lacks[0].free, found.lacks[0].in_use) == (free, 1 - free)


def test_a_share_of_a_gpu_is_not_compared_with_whole_ones() -> None:
    job = holder("job", "gpu-0", "40Gi")
    found = explained(job, {"n1": (shared("gpu-0"), shared("gpu-1"))}, [], HGX)
    assert found.verdict is Verdict.NO_CHOICE
    assert found.why[0].startswith("shares of GPUs are not compared")


def test_admin_access_is_the_reason_of_a_claim_that_has_it() -> None:
    job = claim("monitor", plain(1, adminAccess=True), ["gpu-1"])
    job["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    found = explained(job, {"n1": published()}, [], HGX)
    assert (found.verdict, found.why) == (
        Verdict.NO_CHOICE,
        ("it has admin access: it takes its devices from nobody, whoever has them",),
    )


def test_a_request_for_admin_access_finds_devices_that_others_have() -> None:
    job = claim("monitor", plain(8, adminAccess=True))
    found = wait(job, None, claim("other", plain(2), ["gpu-0", "gpu-1"]))
    assert (found.lacks[0].free, found.lacks[0].in_use) == (8, 0)
    assert "admin access" in found.why[0]
    assert "admin.nodetopo.io" in found.cures[0]


def partitioned() -> tuple[PublishedDevice, ...]:
    """Return GPUs in Fabric Manager's partitions of two: 0 and 2, 1 and 3, and so on."""
    return tuple(
        replace(
            it, attributes={**it.attributes, "gpu.nvidia.com/partition2": str(at // 4 * 2 + at % 2)}
        )
        for at, it in enumerate(published())
    )


def test_a_claim_of_a_partition_is_held_against_other_partitions_alone() -> None:
    spec = plain(2)
    attribute = "gpu.nvidia.com/partition2"
    spec["devices"]["constraints"] = [{"requests": ["gpus"], "matchAttribute": attribute}]
    job = claim("job", spec, ["gpu-0", "gpu-2"])
    found = explained(job, {"n1": partitioned()}, [], HGX)
    assert found.verdict in {Verdict.BEST, Verdict.WORSE}
    assert not any("export" in cure for cure in found.cures)
    assert found.best is not None
    assert found.best.gpus in {(0, 2), (1, 3), (4, 6), (5, 7)}


def test_the_best_partition_counts_wherever_it_is_in_the_slices() -> None:
    """Two partitions of a socket each, and two across the sockets, one of which comes last."""
    attribute = "gpu.nvidia.com/partition2"
    pairs = {"a": (0, 1), "b": (4, 5), "c": (2, 6), "d": (3, 7)}
    devices = published()
    partitions = tuple(
        replace(devices[at], attributes={**devices[at].attributes, attribute: name})
        for name, pair in pairs.items()
        for at in pair
    )
    spec = plain(2)
    spec["devices"]["constraints"] = [{"requests": ["gpus"], "matchAttribute": attribute}]
    found = explained(claim("job", spec, ["gpu-2", "gpu-6"]), {"n1": partitions}, [], HGX)
    assert (found.verdict, found.best and found.best.gpus) == (Verdict.WORSE, (0, 1))


def test_devices_for_admin_access_are_no_gpus() -> None:
    admin = PublishedDevice(
        driver="nodetopo.io",
        pool="n1",
        name="admin-1b",
        attributes={
            "nodetopo.io/type": "admin",
            "resource.kubernetes.io/pciBusID": str(HGX.gpus[0].pci),
        },
    )
    job = claim("job", plain(1, deviceClassName="gpu.nodetopo.io"))
    assert explained(job, {"n1": (admin,)}, [], None).lacks == ()
    monitor = claim("monitor", plain(1, deviceClassName="admin.nodetopo.io", adminAccess=True))
    assert explained(monitor, {"n1": (admin,)}, [], None).lacks[0].free == 1


def test_imex_channels_are_no_gpus_and_gpus_no_channels() -> None:
    devices = {"n1": published(channels("n1"))}
    name = "compute-domain-default-channel.nvidia.com"
    channel = explained(claim("job", plain(1, deviceClassName=name)), devices, [], None)
    assert channel.lacks[0].free == 1
    assert explained(claim("job", plain(1)), devices, [], None).lacks[0].free == 8
