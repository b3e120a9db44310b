"""GPUs that are kept from pods, by each of their names."""

from collections import Counter

import pytest
from msgspec.structs import replace

from nodetopo.deviceplugin.devices import matches
from nodetopo.deviceplugin.resources import MigStrategy, Offer, Rules, offer
from nodetopo.model.gpu import Gpu
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot
from tests.deviceplugin.machines import node, rules

GPU = "nvidia.com/gpu"
MIG = node("h100x8-nvswitch-2numa-mig")
WHOLE = node("h100x8-nvswitch-2numa-8cx7")
SPARED = Gpu(
    index=3,
    uuid="GPU-5fd4f087-86f3-7a43-b711-4771313afc50",
    pci=PciAddress.parse("0000:3b:00.0"),
    product="NVIDIA H100 80GB HBM3",
)


def excluding(snapshot: Snapshot, *names: str, mig: MigStrategy = MigStrategy.NONE) -> Offer:
    return offer(snapshot, Rules(mig=mig, excluded=names), {})


def offered(found: Offer) -> list[str]:
    return [device.id for resource in found.resources for device in resource.devices]


@pytest.mark.parametrize(
    "name",
    [
        "3",
        "GPU3",
        "gpu3",
        "GPU-5fd4f087-86f3-7a43-b711-4771313afc50",
        "gpu-5FD4F087-86f3-7a43-b711-4771313afc50",
        "GPU-5fd4",
        "GPU-5",
        "0000:3b:00.0",
        "0000:3B:00.0",
        "00000000:3B:00.0",
        "3b:00.0",
        " 3b:00.0 ",
        "NVIDIA H100 80GB HBM3",
        "*h100*",
        "NVIDIA H100*",
        "*HBM3",
        "*",
    ],
)
def test_a_gpu_is_named_as_people_and_programs_name_it(name: str) -> None:
    assert matches(SPARED, name)


@pytest.mark.parametrize(
    "name",
    [
        "33",
        "03",
        "GPU",
        "GPU-",
        "GPU33",
        "5fd4f087",
        "GPU-6",
        "0001:3b:00.0",
        "3b:00.1",
        "3b:00",
        "H100",
        "NVIDIA H100",
        "NVIDIA H100 80GB HBM?",
        "NVIDIA H[0-9]00*",
        "",
    ],
)
def test_what_names_another_or_none_does_not_name_it(name: str) -> None:
    assert not matches(SPARED, name)


def test_a_gpu_of_which_little_is_known_is_named_by_its_index_alone() -> None:
    bare = Gpu(index=3)
    assert [name for name in ("3", "GPU3", "GPU-5", "3b:00.0", "*") if matches(bare, name)] == [
        "3",
        "GPU3",
    ]


def test_an_excluded_gpu_is_offered_in_no_resource() -> None:
    spared = WHOLE.gpus[5]
    found = excluding(WHOLE, spared.id)
    assert offered(found) == [gpu.id for gpu in WHOLE.gpus if gpu is not spared]
    assert spared.id not in found.resources[0].gpus.values()


def test_the_mig_devices_of_an_excluded_gpu_go_with_it() -> None:
    found = excluding(MIG, "GPU1", mig=MigStrategy.MIXED)
    assert [resource.name for resource in found.resources] == [GPU, "nvidia.com/mig-1g.10gb"]
    assert not [one for one in found.resources if MIG.gpus[1].id in one.gpus.values()]


def test_all_replicas_of_an_excluded_gpu_go_with_it() -> None:
    shared = replace(rules(gpu=4), excluded=("0", "7"))
    counted = Counter(name.partition("::")[0] for name in offered(offer(WHOLE, shared, {})))
    assert counted == dict.fromkeys((gpu.id for gpu in WHOLE.gpus[1:7]), 4)


def test_an_excluded_gpu_breaks_no_rule_of_the_strategy_single() -> None:
    alike = [gpu for gpu in MIG.gpus if gpu.mig is None or not gpu.mig.is_enabled]
    others = [gpu.name for gpu in MIG.gpus if gpu not in alike]
    assert excluding(MIG, mig=MigStrategy.SINGLE).resources == ()
    found = excluding(MIG, *others, mig=MigStrategy.SINGLE)
    assert offered(found) == [gpu.id for gpu in alike]


def test_names_that_no_gpu_has_are_returned() -> None:
    found = excluding(WHOLE, "GPU1", "GPU9", "*T4*", "*H100*")
    assert found.unused_exclusions == ("GPU9", "*T4*")


def test_nothing_is_said_of_names_while_no_gpu_is_known() -> None:
    assert excluding(replace(WHOLE, gpus=()), "GPU1").unused_exclusions == ()
