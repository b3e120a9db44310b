"""What is offered under which name, by NVIDIA's strategies, on all of the tests' machines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.resources import (
    LONGEST_NAME,
    MigStrategy,
    Offer,
    Refusal,
    Resource,
    Rules,
    mig_resource,
    offer,
)
from nodetopo.model.gpu import DISPLAYS, Mig, MigInstance
from nodetopo.model.snapshot import Snapshot
from tests.deviceplugin.machines import NODES, node, rules
from tests.deviceplugin.offered import GPU, MIG, WHOLE, changed, counts, divided

SHAPES = sorted(path.name for path in NODES.iterdir() if path.is_dir())

every_shape = pytest.mark.parametrize("shape", SHAPES)
every_strategy = pytest.mark.parametrize("strategy", MigStrategy)


@every_shape
def test_without_a_mig_strategy_every_gpu_is_offered_whole_in_mig_mode_or_not(shape: str) -> None:
    snapshot = node(shape)
    (found,) = offer(snapshot, Rules(), {}).resources
    assert (found.name, [device.id for device in found.devices], found.is_whole) == (
        GPU,
        [gpu.id for gpu in snapshot.gpus],
        True,
    )


@every_shape
def test_mixed_offers_each_undivided_gpu_and_each_mig_device_once(shape: str) -> None:
    snapshot = node(shape)
    found = offer(snapshot, rules(MigStrategy.MIXED), {})
    expected: dict[str, set[str]] = {}
    for gpu in snapshot.gpus:
        if gpu.mig is None or not gpu.mig.is_enabled:
            expected.setdefault(GPU, set()).add(gpu.id)
            continue
        for instance in gpu.mig.instances:
            expected.setdefault(f"nvidia.com/mig-{instance.profile}", set()).add(instance.uuid)
    assert {one.name: {d.id for d in one.devices} for one in found.resources} == expected


@every_shape
@every_strategy
@pytest.mark.parametrize("replicas", [0, 3])
def test_a_device_is_as_near_and_as_healthy_as_its_gpu(
    shape: str, strategy: MigStrategy, replicas: int
) -> None:
    snapshot = changed(node(shape), lambda gpu: replace(gpu, is_lost=gpu.index % 2 == 1))
    shared = rules(strategy, gpu=replicas) if replicas else rules(strategy)
    by_id = {gpu.id: gpu for gpu in snapshot.gpus}
    for found in offer(snapshot, shared, {}).resources:
        nodes = {by_id[found.gpus[device.id]].numa_node for device in found.devices}
        for device in found.devices:
            gpu = by_id[found.gpus[device.id]]
            assert device.is_healthy is not gpu.is_lost
            assert device.minor == gpu.minor
            if None not in nodes:
                assert device.numa_nodes == (gpu.numa_node,)


def test_mixed_says_which_gpu_in_mig_mode_offers_nothing() -> None:
    assert offer(MIG, rules(MigStrategy.MIXED), {}).refusals == (
        Refusal(
            resource=None,
            reason="GPU2 (GPU-00000d16-0000-4000-8000-000000000002) is in MIG mode and has no "
            "MIG device",
        ),
    )


def test_mixed_counts_what_the_machine_has() -> None:
    assert counts(offer(MIG, rules(MigStrategy.MIXED), {})) == {
        GPU: 5,
        "nvidia.com/mig-1g.10gb": 7,
        "nvidia.com/mig-3g.40gb": 2,
    }


def test_a_node_that_is_all_mig_offers_no_whole_gpus_under_mixed() -> None:
    all_mig = changed(WHOLE, divided("1g.10gb"))
    assert counts(offer(all_mig, rules(MigStrategy.MIXED), {})) == {"nvidia.com/mig-1g.10gb": 8}


# Names: k8s-device-plugin v0.19.0 internal/rm/rm.go, AddDefaultResourcesToConfig.
@pytest.mark.parametrize(
    ("profile", "name"),
    [
        ("1g.5gb", "nvidia.com/mig-1g.5gb"),
        ("1g.10gb+me", "nvidia.com/mig-1g.10gb.me"),
        ("1g.10gb+me.all", "nvidia.com/mig-1g.10gb.me.all"),
        ("1g.24gb-me", "nvidia.com/mig-1g.24gb-me"),
        ("1c.3g.20gb", None),
        ("1g.10gb+me,gfx", None),
        ("", None),
        (None, None),
        ("1g.10gb+" + "x" * 60, None),
    ],
)
def test_profiles_name_resources_as_nvidias_do(profile: str | None, name: str | None) -> None:
    assert mig_resource(GPU, profile) == name


def test_mig_resources_are_in_the_domain_of_the_gpus() -> None:
    assert mig_resource("example.com/accelerator", "1g.5gb") == "example.com/mig-1g.5gb"


@given(st.text(max_size=80))
def test_whatever_a_profile_is_called_the_name_is_valid_or_none(profile: str) -> None:
    name = mig_resource(GPU, profile)
    assert name is None or (len(name) <= LONGEST_NAME and name.isascii() and "+" not in name)


def test_mig_devices_that_are_parts_of_their_gpu_instances_are_left_out_and_said_at_once() -> None:
    snapshot = changed(WHOLE, divided("3g.40gb", *["1c.3g.40gb"] * 3, "1c.2g.20gb", None))
    found = offer(replace(snapshot, gpus=snapshot.gpus[:2]), rules(MigStrategy.MIXED), {})
    both = ", ".join(f"{gpu.name} ({gpu.id})" for gpu in WHOLE.gpus[:2])
    assert counts(found) == {"nvidia.com/mig-3g.40gb": 2}
    (refusal,) = found.refusals
    assert refusal.reason == (
        f"MIG devices that no resource is named after: 2 of 1c.2g.20gb on {both}; "
        f"6 of 1c.3g.40gb on {both}; 2 of an unknown profile on {both}"
    )


def test_single_offers_mig_devices_as_gpus_where_all_are_alike() -> None:
    snapshot = changed(WHOLE, divided("1g.10gb", "1g.10gb"))
    (found,) = offer(snapshot, rules(MigStrategy.SINGLE), {}).resources
    assert (found.name, len(found.devices), found.devices[3].id) == (GPU, 16, "MIG-1-1")
    assert (found.is_whole, found.is_shared) == (False, False)


def test_single_offers_whole_gpus_where_none_is_in_mig_mode() -> None:
    assert offer(WHOLE, rules(MigStrategy.SINGLE), {}) == offer(WHOLE, Rules(), {})


def test_single_takes_compute_instances_that_are_all_alike() -> None:
    snapshot = changed(WHOLE, divided("1c.3g.40gb", "1c.3g.40gb"))
    assert counts(offer(snapshot, rules(MigStrategy.SINGLE), {})) == {GPU: 16}


def test_single_names_every_gpu_that_breaks_the_rule_and_offers_nothing() -> None:
    def called(*indices: int) -> str:
        return ", ".join(f"GPU{n} ({MIG.gpus[n].id})" for n in indices)

    reason = (
        "the MIG strategy single wants one profile everywhere: "
        f"not in MIG mode, while GPU0 is: {called(3, 4, 5, 6, 7)}; "
        f"in MIG mode without a MIG device: {called(2)}; "
        f"{called(1)} has 3g.40gb where GPU0 has 1g.10gb"
    )
    assert offer(MIG, rules(MigStrategy.SINGLE), {}) == Offer(
        resources=(), refusals=(Refusal(resource=GPU, reason=reason),)
    )


def test_single_compares_what_mig_devices_consist_of_before_their_profiles() -> None:
    # NVIDIA's plugin compares the attributes alone (internal/rm/device_map.go).
    (first, *_) = MIG.gpus[0].mig.instances if MIG.gpus[0].mig else ()
    assert first.attributes is not None
    smaller = replace(first.attributes, memory_mib=1)
    alike = changed(
        WHOLE,
        lambda gpu: replace(
            gpu,
            mig=Mig(
                is_enabled=True,
                instances=(
                    replace(
                        first,
                        uuid=f"MIG-{gpu.index}",
                        attributes=smaller if gpu.index == 5 else first.attributes,
                    ),
                ),
            ),
        ),
    )
    (refusal,) = offer(alike, rules(MigStrategy.SINGLE), {}).refusals
    assert f"GPU5 ({WHOLE.gpus[5].id}) has 1g.10gb where GPU0 has 1g.10gb" in refusal.reason


def test_single_refuses_what_it_cannot_compare() -> None:
    snapshot = changed(WHOLE, divided("1g.10gb"))
    unknown = replace(
        snapshot.gpus[1],
        mig=Mig(is_enabled=True, instances=(MigInstance(uuid="MIG-x", profile=None),)),
    )
    snapshot = replace(snapshot, gpus=(snapshot.gpus[0], unknown))
    (refusal,) = offer(snapshot, rules(MigStrategy.SINGLE), {}).refusals
    assert refusal.reason.endswith("has an unknown profile where GPU0 has 1g.10gb")


def test_a_lost_gpu_whose_mode_was_never_read_breaks_no_rule() -> None:
    snapshot = changed(WHOLE, divided("1g.10gb"))
    lost = replace(snapshot.gpus[0], mig=None, is_lost=True)
    found = offer(replace(snapshot, gpus=(lost, *snapshot.gpus[1:])), rules(MigStrategy.SINGLE), {})
    assert counts(found) == {GPU: 7}


@every_strategy
@pytest.mark.parametrize("product", sorted(DISPLAYS))
def test_a_display_adapter_is_neither_offered_nor_counted(
    product: str, strategy: MigStrategy
) -> None:
    snapshot = changed(WHOLE, divided("1g.10gb"))
    display = replace(WHOLE.gpus[0], product=product, uuid="GPU-display")
    with_display = replace(snapshot, gpus=(display, *snapshot.gpus))
    assert offer(with_display, rules(strategy), {}) == offer(snapshot, rules(strategy), {})


def test_mig_devices_have_the_capabilities_that_the_driver_lists() -> None:
    minors = {(0, 7, None): 30, (0, 7, 0): 31}
    found = offer(MIG, rules(MigStrategy.MIXED), minors)
    seventh = next(one for one in found.resources if one.name.endswith("1g.10gb"))
    assert [(d.minor, d.capabilities) for d in seventh.devices[:2]] == [(0, (30, 31)), (0, None)]


def test_excluding_every_gpu_is_reported() -> None:
    found = offer(WHOLE, Rules(excluded=("*H100*",)), {})
    assert found == Offer(
        resources=(),
        refusals=(Refusal(resource=None, reason="exclude-gpus leaves no GPU"),),
    )


def test_nothing_is_offered_of_a_node_without_gpus() -> None:
    assert offer(Snapshot(), rules(MigStrategy.SINGLE, gpu=2), {}) == Offer(resources=())


def test_what_is_whole_and_what_is_shared_follows_from_the_devices() -> None:
    one = Resource(
        name=GPU, unshared_name=GPU, devices=(PluginDevice(id="GPU-0"),), gpus={"GPU-0": "GPU-0"}
    )
    assert (one.is_whole, one.is_shared) == (True, False)
