"""Sets of GPUs by name, for claims that were allocated from devices of another choice of sets."""

import pytest

from nodetopo.components.dra.form import Form
from nodetopo.components.dra.pool import Pool, named_set
from nodetopo.machines.bundled import machine

DGX = machine("dgx-h100")
POOL = Pool.of(DGX, DGX.gpus, form=Form(has_sets=False))


def test_every_set_that_is_published_anywhere_is_found_by_its_name() -> None:
    with_sets = Pool.of(DGX, DGX.gpus)
    for each in with_sets.sets:
        if not each.is_single:
            found = named_set(each.name, POOL)
            assert found == with_sets.backing(each.name)


def test_a_set_that_no_pool_publishes_any_longer_is_found_by_its_buses() -> None:
    names = [each.name.removeprefix("gpu-") for each in POOL.sets if each.is_single]
    found = named_set(f"gpus-{names[0]}-{names[7]}", POOL)
    assert found is not None
    assert found.gpus == (DGX.gpus[0].id, DGX.gpus[7].id)


@pytest.mark.parametrize(
    "name", ["gpu-1b", "gpus-", "gpus-ff", "gpus-1b-1b", "gpus-4x-0123456789abcdef", "mig-1b"]
)
def test_other_names_are_no_sets(name: str) -> None:
    assert named_set(name, POOL) is None
