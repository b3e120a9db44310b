"""What a person is told about labels."""

import pytest
from msgspec import structs

from nodetopo.components.labels.completeness import remarks
from nodetopo.components.labels.rules import LabelRules
from nodetopo.model.gpu import Mig
from nodetopo.model.snapshot import Snapshot
from tests.components.labels.gfd_machines import (
    H100,
    PARTLY,
    all_divided,
    divided,
    shape,
    with_gpus,
)

SINGLE = LabelRules(mig="single")
HALVES = all_divided(H100, "3g.40gb")
INVALID = "nvidia.com/gpu.product ends in MIG-INVALID by the MIG strategy single: "


@pytest.mark.parametrize("rules", [LabelRules(), LabelRules(mig="mixed"), SINGLE])
def test_nothing_is_remarkable_about_gpus_that_are_all_alike(rules: LabelRules) -> None:
    assert remarks(H100, rules) == remarks(HALVES, rules) == ()


def test_several_models_are_listed_with_the_one_that_is_described() -> None:
    told = (
        "the node has several GPU models, NVIDIA GB300 (1), "
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition (1); "
        "nvidia.com/gpu.* describe NVIDIA GB300"
    )
    assert remarks(shape("gb300x2-station-1grace-datadirect"), LabelRules()) == (told,)


def test_a_gpu_that_never_told_its_model_is_not_another_model() -> None:
    assert remarks(with_gpus(H100, 3, product=None), LabelRules()) == ()


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (with_gpus(HALVES, 3, mig=None), "some GPUs are in MIG mode and some are not"),
        (
            with_gpus(HALVES, 3, mig=Mig(is_enabled=True)),
            "a GPU is in MIG mode without a MIG device",
        ),
        (PARTLY, "a GPU is in MIG mode without a MIG device"),
        (
            structs.replace(HALVES, gpus=(divided(H100.gpus[0], "1g.10gb"), *HALVES.gpus[1:])),
            "there are MIG devices of several profiles",
        ),
    ],
)
def test_what_breaks_the_strategy_single_is_named(node: Snapshot, reason: str) -> None:
    assert remarks(node, SINGLE) == (INVALID + reason,)
    assert remarks(node, LabelRules(mig="mixed")) == ()
