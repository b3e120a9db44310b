"""Labels of MIG devices, by NVIDIA's strategies."""

import pytest
from msgspec import structs

from nodetopo.components.labels.rules import LabelRules, SharedLabel
from nodetopo.model.gpu import Mig
from nodetopo.model.snapshot import Snapshot
from tests.components.labels.gfd_machines import (
    H100,
    HALF,
    PARTLY,
    all_divided,
    changed,
    divided,
    gfd,
    ruled,
    with_gpus,
)

both = pytest.mark.parametrize("mig", ["single", "mixed"])

INVALID: dict[str, str | None] = {
    "gpu.count": "0",
    "gpu.memory": "0",
    "gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-INVALID",
    "gpu.replicas": "0",
    "gpu.sharing-strategy": None,
    "gpu.slices.gi": None,
    "mig.strategy": "single",
}
HALVES = all_divided(H100, "3g.40gb", "3g.40gb")
ATTRIBUTES = {
    "engines.copy": "3",
    "engines.decoder": "4",
    "engines.encoder": "0",
    "engines.jpeg": "3",
    "engines.ofa": "0",
    "memory": "40448",
    "multiprocessors": "60",
    "slices.ci": "3",
    "slices.gi": "3",
}


def of(stem: str, found: dict[str, str]) -> dict[str, str]:
    """Return the labels whose keys begin with *stem*, without it."""
    return {key.removeprefix(stem): value for key, value in found.items() if key.startswith(stem)}


@both
def test_without_gpus_in_mig_mode_only_the_strategy_is_told(mig: str) -> None:
    assert ruled(H100, mig=mig) == {"mig.strategy": mig}


@both
def test_a_node_without_gpus_tells_no_strategy(mig: str) -> None:
    empty = structs.replace(H100, gpus=(), nvlinks=(), pairs=(), nvswitches=())
    assert ruled(empty, mig=mig) == {}


def test_under_single_mig_devices_take_the_place_of_gpus() -> None:
    assert ruled(HALVES, mig="single") == {
        "gpu.count": "16",
        "gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb",
        "gpu.replicas": "1",
        "mig.strategy": "single",
        **{f"gpu.{name}": value for name, value in ATTRIBUTES.items()},
    }


@pytest.mark.parametrize(
    "breaking",
    [
        with_gpus(HALVES, 3, mig=None),
        with_gpus(HALVES, 3, mig=Mig(is_enabled=False)),
        with_gpus(HALVES, 3, mig=Mig(is_enabled=True)),
        structs.replace(
            HALVES, gpus=(*HALVES.gpus[:7], divided(HALVES.gpus[7], "3g.40gb", "1g.10gb"))
        ),
        PARTLY,
    ],
)
def test_under_single_gpus_that_are_not_all_alike_are_invalid(breaking: Snapshot) -> None:
    found = gfd(breaking, LabelRules(mig="single"))
    assert {key: found.get(key) for key in INVALID} == INVALID


def test_a_lost_gpu_whose_mode_was_never_read_leaves_open_whether_a_node_is_invalid() -> None:
    lost = with_gpus(HALVES, 3, mig=None, is_lost=True)
    found = gfd(lost, LabelRules(mig="single"))
    assert found.keys() & INVALID == {"mig.strategy"}
    both = structs.replace(lost, gpus=(H100.gpus[0], *lost.gpus[1:]))  # one is whole
    found = gfd(both, LabelRules(mig="single"))
    assert {key: found.get(key) for key in INVALID} == INVALID


def test_a_lost_gpu_whose_mode_was_never_read_may_have_more_of_each_mig_device() -> None:
    found = gfd(with_gpus(HALVES, 3, mig=None, is_lost=True), LabelRules(mig="mixed"))
    assert "mig-3g.40gb.count" not in found
    assert found["mig-3g.40gb.product"].endswith("MIG-3g.40gb")


def test_a_lost_gpu_may_be_the_only_whole_one() -> None:
    lost = with_gpus(HALVES, 3, mig=None, is_lost=True)
    assert gfd(HALVES)["gpu.replicas"] == "0"
    found = gfd(lost)
    assert (found.get("gpu.replicas"), found["gpu.sharing-strategy"]) == (None, "none")
    shared = LabelRules(shared={"nvidia.com/gpu": SharedLabel(replicas=2)})
    assert {"gpu.product", "gpu.sharing-strategy"}.isdisjoint(gfd(lost, shared))


def test_mig_devices_that_did_not_tell_their_profile_have_no_product() -> None:
    silent = all_divided(H100, None)
    found = gfd(silent, LabelRules(mig="single"))
    assert (found.get("gpu.product"), found["gpu.count"]) == (None, "8")
    assert of("mig-", gfd(silent, LabelRules(mig="mixed"))) == {}


def test_a_mig_device_that_did_not_tell_its_profile_takes_no_other_with_it() -> None:
    gpus = (divided(H100.gpus[0], None, "3g.40gb", attributes=HALF), *HALVES.gpus[1:])
    found = gfd(structs.replace(HALVES, gpus=gpus), LabelRules(mig="mixed"))
    assert found["mig-3g.40gb.count"] == "15"


def test_attributes_that_one_device_keeps_to_itself_are_told_by_another() -> None:
    gpus = (divided(H100.gpus[0], "3g.40gb"), *HALVES.gpus[1:])
    silent = structs.replace(HALVES, gpus=gpus)
    assert gfd(silent, LabelRules(mig="single")) == {
        **gfd(HALVES, LabelRules(mig="single")),
        "gpu.count": "15",
    }


def test_under_mixed_each_profile_has_labels_of_its_own() -> None:
    assert ruled(PARTLY, mig="mixed").keys() == {
        "mig.strategy",
        *(
            f"mig-{profile}.{suffix}"
            for profile in ("1g.10gb", "3g.40gb")
            for suffix in ("product", "count", "replicas", "sharing-strategy", *ATTRIBUTES)
        ),
    }
    assert of("mig-3g.40gb.", gfd(HALVES, LabelRules(mig="mixed"))) == {
        "count": "16",
        "product": "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb",
        "replicas": "1",
        "sharing-strategy": "none",
        **ATTRIBUTES,
    }


def test_a_profile_is_spelled_as_its_resource_is() -> None:
    found = gfd(all_divided(H100, "1g.10gb+me.all"), LabelRules(mig="mixed"))
    assert found["mig-1g.10gb.me.all.product"] == "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb.me.all"


@pytest.mark.parametrize("profile", ["1g.10gb+" + "x" * 35, "1g 10gb", "+", ""])
def test_a_profile_that_no_key_can_hold_has_no_labels(profile: str) -> None:
    found = gfd(all_divided(H100, profile, "3g.40gb"), LabelRules(mig="mixed"))
    assert {key.partition(".")[0] for key in of("mig-", found)} == {"3g"}


def test_the_longest_profile_makes_a_key_that_the_api_server_takes() -> None:
    profile = "1g.10gb+" + "x" * 34
    found = gfd(all_divided(H100, profile), LabelRules(mig="mixed"))
    assert max(len(key) for key in found) == 63


def test_a_model_partitioned_on_all_gpus_has_no_replicas_where_mig_does_not_count() -> None:
    assert changed(H100, HALVES) == {"gpu.replicas": "0"}
