"""Labels of shared GPUs and MIG devices."""

import pytest

from nodetopo.components.labels.rules import LabelRules, SharedLabel
from tests.components.labels.gfd_machines import H100, PARTLY, all_divided, gfd, ruled, with_gpus

GPU, ONE = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"


def test_a_shared_gpu_says_so_in_its_product() -> None:
    assert ruled(H100, shared={GPU: SharedLabel(replicas=4)}) == {
        "gpu.product": "NVIDIA-H100-80GB-HBM3-SHARED",
        "gpu.replicas": "4",
        "gpu.sharing-strategy": "time-slicing",
    }


def test_a_renamed_one_does_not() -> None:
    assert ruled(H100, shared={GPU: SharedLabel(replicas=4, is_renamed=True)}) == {
        "gpu.replicas": "4",
        "gpu.sharing-strategy": "time-slicing",
    }


def test_a_resource_that_the_node_does_not_have_shares_nothing() -> None:
    assert ruled(H100, shared={ONE: SharedLabel(replicas=4)}) == {}


def test_gpus_that_are_all_partitioned_are_not_shared() -> None:
    assert ruled(all_divided(H100, "3g.40gb"), shared={GPU: SharedLabel(replicas=4)}) == {}


def test_whole_gpus_are_shared_beside_partitioned_ones() -> None:
    assert ruled(PARTLY, shared={GPU: SharedLabel(replicas=3)}) == {
        "gpu.product": "NVIDIA-H100-80GB-HBM3-SHARED",
        "gpu.replicas": "3",
        "gpu.sharing-strategy": "time-slicing",
    }


def test_under_single_mig_devices_are_shared_as_gpus() -> None:
    rules = LabelRules(mig="single", shared={GPU: SharedLabel(replicas=4)})
    found = gfd(all_divided(H100, "3g.40gb"), rules)
    assert {name: found[f"gpu.{name}"] for name in ("product", "count", "replicas")} == {
        "product": "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb-SHARED",
        "count": "8",
        "replicas": "4",
    }


def test_under_single_a_node_that_is_not_all_alike_shares_nothing() -> None:
    rules = LabelRules(mig="single", shared={GPU: SharedLabel(replicas=4)})
    assert gfd(PARTLY, rules) == gfd(PARTLY, LabelRules(mig="single"))


def test_under_mixed_a_profile_is_shared_by_its_own_resource() -> None:
    shared = {GPU: SharedLabel(replicas=2), ONE: SharedLabel(replicas=3)}
    found = gfd(PARTLY, LabelRules(mig="mixed", shared=shared))
    assert {key: found[key] for key in found if key.endswith((".replicas", ".product"))} == {
        "gpu.product": "NVIDIA-H100-80GB-HBM3-SHARED",
        "gpu.replicas": "2",
        "mig-1g.10gb.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED",
        "mig-1g.10gb.replicas": "3",
        "mig-3g.40gb.product": "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb",
        "mig-3g.40gb.replicas": "1",
    }


@pytest.mark.parametrize("model", ["X" * 80, "NVIDIA " * 12])
def test_a_long_model_is_cut_before_what_tells_of_mig_and_sharing(model: str) -> None:
    node = with_gpus(all_divided(H100, "3g.40gb"), product=model)
    rules = LabelRules(mig="single", shared={GPU: SharedLabel(replicas=4)})
    product = gfd(node, rules)["gpu.product"]
    assert product.endswith("-MIG-3g.40gb-SHARED")
    assert len(product) <= 63


def test_a_model_of_which_nothing_is_left_has_no_product_shared_or_not() -> None:
    node = with_gpus(H100, product="\N{SNOWMAN}")
    assert "gpu.product" not in gfd(node, LabelRules(shared={GPU: SharedLabel(replicas=4)}))
