"""The placement of a resource: rules from the settings, engines kept, reasons for the log."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from nodetopo.allocation.rules import Model, Policy
from nodetopo.components.gpus.placement import MOST_VARIANTS, USUAL, Placement, Variant
from nodetopo.components.gpus.plan import PluginPlan, load_table
from nodetopo.deviceplugin.allocation_log import Asked
from nodetopo.deviceplugin.resources import MigStrategy, offer
from nodetopo.errors import InputError
from nodetopo.kernel.settings.data_files import parse
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kernel.settings.policies import placement
from nodetopo.machines.bundled import machine
from nodetopo.model.gpu_health import GpuHealth
from nodetopo.model.snapshot import Snapshot
from tests.deviceplugin.machines import node, rules, whole

DGX = machine("dgx-1v")
IDS = tuple(gpu.id for gpu in DGX.gpus)
TABLE = "{kind: nodetopo-bandwidth-table, version: 1, unit: GB/s, sets: [%s]}"


def placed(
    snapshot: Snapshot = DGX,
    policy: Policy = Policy.BEST,
    model: Model = Model.RING,
    sets: str | None = None,
) -> Placement:
    """Return a placement that knows *snapshot*."""
    table = None if sets is None else parse("table.yaml", TABLE % sets)
    found = Placement(policy, model, table)
    found.take(snapshot, whole(snapshot))
    return found


def asked(*available: int, size: int, required: tuple[int, ...] = ()) -> Asked:
    return Asked(
        available=tuple(IDS[gpu] for gpu in available),
        required=tuple(IDS[gpu] for gpu in required),
        size=size,
        took_ms=0.1,
    )


def names(*gpus: int) -> list[str]:
    return [IDS[gpu] for gpu in gpus]


def test_before_the_first_snapshot_there_is_an_answer_and_no_reason() -> None:
    empty = Placement(Policy.BEST, Model.RING)
    assert empty.prefer(["b", "a"], [], 1) == ("a",)
    assert empty.explain(["a"], None) == {}
    assert empty.example(4) is None


@pytest.mark.parametrize(("policy", "chosen"), [(Policy.BEST, (0, 4)), (Policy.NUMA_FIRST, (0, 1))])
def test_the_policy_decides_the_answer(policy: Policy, chosen: tuple[int, ...]) -> None:
    answer = placed(policy=policy).prefer(names(0, 1, 4, 5), [], 2)
    assert list(answer) == names(*chosen)


def test_a_measured_figure_decides_before_the_model() -> None:
    by_model = placed().prefer(IDS, [], 2)
    measured = placed(sets="{gpus: [0, 5], bandwidth: 80}").prefer(IDS, [], 2)
    assert (list(by_model), list(measured)) == (names(0, 3), names(0, 5))


def test_settings_give_the_policy_of_the_resource_and_the_table(tmp_path: Path) -> None:
    path = tmp_path / "table.yaml"
    path.write_text(TABLE % "{gpus: [0, 5], bandwidth: 80}", encoding="utf-8")
    settings = Settings(
        node_name="n",
        placement_policy=placement("packed,nvidia.com/gpu=numa-first"),
        bandwidth_table=path,
    )
    with capture_logs() as lines:
        plan = PluginPlan.of(settings, load_table(settings), is_simulated=False)
        found = Placement(*plan.placement(whole(DGX)))
        found.take(DGX, whole(DGX))
    assert [line["event"] for line in lines] == ["bandwidth table used"]
    example = found.example(2)
    assert example is not None
    assert (example.rules.policy, example.rules.model) == (Policy.NUMA_FIRST, Model.RING)
    assert example.rules.measured is not None


def test_a_table_that_is_missing_stops_the_start(tmp_path: Path) -> None:
    settings = Settings(node_name="n", bandwidth_table=tmp_path / "none.yaml")
    with pytest.raises(InputError, match="is not a file"):
        load_table(settings)


def test_a_table_that_does_not_fit_the_node_is_said_and_left_out() -> None:
    with capture_logs() as lines:
        answer = placed(model=Model.TABLE, sets="{gpus: [0, 9], bandwidth: 80}").prefer(IDS, [], 2)
    assert list(answer) == names(0, 3)
    assert [(line["event"], line["model"]) for line in lines] == [
        ("bandwidth table not used", "ring")
    ]
    assert "sets[0].gpus: unknown GPU '9'" in lines[0]["problem"]


def test_a_table_that_fits_is_said_with_what_it_covers() -> None:
    with capture_logs() as lines:
        placed(sets="{gpus: [0, 1, 2, 3], bandwidth: 80}")
    assert [line["covers"] for line in lines] == ["measured: 1 of 70 sets of 4"]


def test_the_engine_is_kept_while_the_facts_of_placement_are_the_same() -> None:
    found = placed()
    before = current(found).allocator
    found.take(replace(DGX, node="renamed"), whole(DGX))
    assert current(found).allocator is before
    assert current(found).snapshot.node == "renamed"


@pytest.mark.parametrize(
    "change",
    [
        {"numa_node": 1},  # a fact
        {"uuid": "GPU-new"},  # another card in the same place
    ],
)
def test_a_change_that_matters_makes_a_new_engine(change: dict[str, Any]) -> None:
    found = placed()
    before = current(found).allocator
    changed = replace(DGX, gpus=(replace(DGX.gpus[0], **change), *DGX.gpus[1:]))
    found.take(changed, whole(changed))
    assert current(found).allocator is not before


def test_a_gpu_that_is_lost_comes_last_even_where_it_changes_no_other_fact() -> None:
    l40s = machine("l40s-pcie-4")
    found = placed(l40s)
    now = replace(l40s, gpus=(replace(l40s.gpus[0], is_lost=True), *l40s.gpus[1:]))
    found.take(now, whole(now))
    assert found.prefer([gpu.id for gpu in l40s.gpus[:2]], [], 1) == (l40s.gpus[1].id,)


def test_an_answer_of_ours_is_explained_with_its_alternatives() -> None:
    found = placed().explain(names(0, 3), asked(0, 1, 2, 3, size=2))
    assert {key: found[key] for key in ("bandwidth_gb_s", "next_best", "lost_at", "leaves")} == {
        "bandwidth_gb_s": 50.0,
        "next_best": names(1, 2),
        "lost_at": "order",
        "leaves": "leaves 2 GPUs together on NUMA node 0, "
        "worth 50 of the node's 960 weighted GB/s to later jobs",
    }


def test_an_answer_that_a_required_gpu_forced_is_explained_against_such_sets_only() -> None:
    found = placed().explain(names(1, 2), asked(0, 1, 2, 3, size=2, required=(1,)))
    assert (found["next_best"], found["lost_at"]) == (names(0, 1), "bandwidth_gb_s")


def test_an_answer_that_is_no_longer_the_best_is_still_explained() -> None:
    found = placed().explain(names(0, 1), asked(0, 1, 2, 3, size=2))
    assert "better GPU0 GPU3: wins on bandwidth, 50 against 25" in str(found["said"])


def test_what_the_kubelet_chose_is_explained_without_alternatives() -> None:
    found = placed().explain(names(0, 1), None)
    assert (found["bandwidth_gb_s"], found["numa_nodes"], found["hcas"]) == (25.0, [0], ["mlx5_0"])
    assert (found["next_best"], found["lost_at"], found["leaves"]) == (None, None, None)


def test_a_gpu_that_nobody_knows_is_said_to_be_unknown() -> None:
    question = replace(asked(0, size=2), available=(IDS[0], "GPU-77"))
    found = placed().explain([IDS[0], "GPU-77"], question)
    assert found == {"said": "not explained: unknown GPU 'GPU-77'"}


def current(found: Placement) -> Any:
    return found._current


MIG = node("h100x8-nvswitch-2numa-mig")


def shared(mig: MigStrategy, name: str, **replicas: int) -> Placement:
    """Return a placement of one resource of the machine with MIG."""
    found = offer(MIG, rules(mig, **replicas), {}).resources
    resource = next(one for one in found if one.name == f"nvidia.com/{name}")
    placement = Placement(Policy.BEST, Model.RING)
    placement.take(MIG, resource)
    return placement


def test_whole_gpus_beside_mig_are_placed_among_themselves() -> None:
    example = shared(MigStrategy.MIXED, "gpu").example(4)
    assert example is not None
    assert set(example.indices) <= {3, 4, 5, 6, 7}


def test_an_example_has_as_many_devices_as_there_are_at_most() -> None:
    example = shared(MigStrategy.MIXED, "mig-3g.40gb").example(4)
    assert example is not None
    assert (len(example.chosen), example.indices) == (2, (1,))


def replicas_of(gpu: int, part: int, *numbers: int) -> list[str]:
    mig = MIG.gpus[gpu].mig
    assert mig is not None
    return [f"{mig.instances[part].uuid}::{number}" for number in numbers]


def test_replicas_of_mig_devices_are_taken_from_the_device_with_fewest_in_use() -> None:
    found = shared(MigStrategy.MIXED, "mig-3g.40gb", **{"mig-3g.40gb": 4})
    # Of the first device one replica is free, of the second all.
    free = [*replicas_of(1, 0, 3), *replicas_of(1, 1, 0, 1, 2, 3)]
    assert sorted(found.prefer(free, [], 2)) == sorted(replicas_of(1, 1, 0, 1))
    assert sorted(found.prefer(free, replicas_of(1, 1, 2), 2)) == sorted(replicas_of(1, 1, 0, 2))


def test_replicas_of_idle_mig_devices_are_taken_from_each_in_turn() -> None:
    found = shared(MigStrategy.MIXED, "mig-3g.40gb", **{"mig-3g.40gb": 4})
    chosen = found.prefer([*replicas_of(1, 0, 0, 1, 2, 3), *replicas_of(1, 1, 0, 1, 2, 3)], [], 2)
    assert {name.partition("::")[0] for name in chosen} == {
        name.partition("::")[0] for name in (*replicas_of(1, 0, 0), *replicas_of(1, 1, 0))
    }


def test_a_choice_of_the_kubelet_among_replicas_is_explained_without_the_pool() -> None:
    found = shared(MigStrategy.NONE, "gpu", gpu=2)
    ids = [f"{MIG.gpus[gpu].id}::0" for gpu in (4, 5)]
    said = found.explain(ids, None)
    assert (said["numa_nodes"], said["leaves"], said["next_best"]) == ([1], None, None)
    assert "2 replicas, one on each of GPU4 and GPU5" in str(said["said"])


def test_the_engine_of_a_shared_resource_is_made_anew_when_its_devices_change() -> None:
    found = shared(MigStrategy.NONE, "gpu", gpu=2)
    before = current(found).allocator
    (more,) = offer(MIG, rules(gpu=3), {}).resources
    found.take(MIG, more)
    assert current(found).allocator is not before
    assert len(set(found.prefer([device.id for device in more.devices], [], 20))) == 20


def test_a_degraded_gpu_is_chosen_only_where_no_sound_one_is_left() -> None:
    found = placed()
    usual = found.prefer(IDS, [], 4)
    worn = {usual[0]: GpuHealth(is_degraded=True, reason="Xid63")}
    found.take(DGX, whole(DGX), worn)

    assert usual[0] not in found.prefer(IDS, [], 4)
    assert usual[0] in found.prefer(IDS, [], 8)
    assert usual[0] in found.prefer(IDS, [usual[0]], 4)
    found.take(DGX, whole(DGX))
    assert found.prefer(IDS, [], 4) == usual


def test_a_degraded_gpu_is_no_next_best_choice_either() -> None:
    found = placed()
    worn = found.prefer(IDS, [], 2)[0]
    found.take(DGX, whole(DGX), {worn: GpuHealth(is_degraded=True)})

    told = found.explain(found.prefer(IDS, [], 2), asked(*range(8), size=2))

    assert isinstance(told["next_best"], list)
    assert worn not in told["next_best"]


def test_other_settings_count_from_the_next_snapshot_on() -> None:
    found = placed()
    found.configure(Policy.NUMA_FIRST, Model.RING, None)
    assert list(found.prefer(names(0, 1, 4, 5), [], 2)) == names(0, 4)
    found.take(DGX, whole(DGX))
    assert list(found.prefer(names(0, 1, 4, 5), [], 2)) == names(0, 1)


def test_a_snapshot_without_gpus_keeps_answers_but_not_of_other_settings() -> None:
    found, empty = placed(), replace(DGX, gpus=())
    found.take(empty, whole(DGX))
    assert current(found).snapshot is DGX
    found.configure(Policy.NUMA_FIRST, Model.RING, None)
    found.take(empty, whole(DGX))
    assert current(found) is None


H100 = machine("dgx-h100")
H100_IDS = tuple(gpu.id for gpu in H100.gpus)
H100_HCAS = tuple(sorted((hca for hca in H100.hcas or ()), key=lambda hca: hca.name))


def sockets(ids: Sequence[str]) -> set[int]:
    """Return the halves of a DGX H100 that GPUs are in."""
    return {H100_IDS.index(name) // 4 for name in ids}


def test_a_request_may_have_a_policy_of_its_own() -> None:
    found, offered = placed(), names(0, 1, 4, 5)
    own = Variant(policy=Policy.NUMA_FIRST)
    assert list(found.prefer(offered, [], 2, own)) == names(0, 1)
    assert list(found.prefer(offered, [], 2)) == names(0, 4)


def test_hcas_in_use_send_the_gpus_of_a_container_that_may_want_some_elsewhere() -> None:
    found = placed(H100)
    near_first = {hca.name for hca in H100_HCAS if hca.numa_node == 0}
    assert sockets(found.prefer(H100_IDS, [], 4, Variant(taken_hcas=frozenset()))) == {0}
    assert sockets(found.prefer(H100_IDS, [], 4, Variant(taken_hcas=frozenset(near_first)))) == {1}
    assert sockets(found.prefer(H100_IDS, [], 4)) == {0}


def test_hcas_come_before_what_is_left_for_a_container_that_may_want_some() -> None:
    found, free = placed(H100), [*H100_IDS[:2], *H100_IDS[4:]]
    taken = Variant(taken_hcas=frozenset(hca.name for hca in H100_HCAS if hca.numa_node == 0))
    assert sockets(found.prefer(free, [], 2)) == {0}  # leaves four together
    assert sockets(found.prefer(free, [], 2, taken)) == {1}


def test_the_explanation_is_of_the_policy_that_chose() -> None:
    found, question = placed(), asked(0, 1, 4, 5, size=2)
    packed = found.prefer(names(0, 1, 4, 5), [], 2, Variant(policy=Policy.NUMA_FIRST))
    usual = found.prefer(names(0, 1, 4, 5), [], 2)  # of another pod, before the line is written
    told = found.explain(packed, question)
    assert (told["next_best"], told["lost_at"]) == (names(4, 5), "order")
    assert found.explain(usual, question)["next_best"] == names(1, 5)


def test_the_explanation_names_only_hcas_that_the_container_can_get() -> None:
    found = placed(H100)
    taken = Variant(taken_hcas=frozenset({H100_HCAS[0].name}))
    chosen = found.prefer(H100_IDS[:2], [], 2, taken)
    question = Asked(available=H100_IDS[:2], required=(), size=2, took_ms=0.1)
    hcas = found.explain(chosen, question)["hcas"]
    assert isinstance(hcas, list)
    assert H100_HCAS[0].name not in hcas


def test_containers_of_a_pod_are_placed_together() -> None:
    found, free = placed(), names(0, 1, 2, 3, 4, 6, 7)
    assert list(found.prefer(free, [], 2)) == names(4, 7)
    assert list(found.prefer(free, [], 2, beside=names(5))) == names(6, 7)
    assert IDS[3] in found.prefer(free, [IDS[3]], 2, beside=names(5))
    told = found.explain(names(6, 7), asked(0, 1, 2, 3, 4, 6, 7, size=2))
    assert str(told["said"]).endswith("; chosen together with GPU5, which the pod has already")


def test_devices_beside_that_are_offered_or_of_another_resource_do_not_count() -> None:
    found, free = placed(), names(0, 1, 2, 3, 4, 6, 7)
    for strange in (["GPU-of-another-plugin"], names(6)):
        assert list(found.prefer(free, [], 2, beside=strange)) == names(4, 7)


def test_replicas_beside_do_not_count() -> None:
    placement = shared(MigStrategy.NONE, "gpu", gpu=2)
    ids = sorted(current(placement).gpus)
    usual = placement.prefer(ids[1:], [], 2)
    assert placement.prefer(ids[1:], [], 2, beside=ids[:1]) == usual


def test_variants_that_another_thread_adds_meanwhile_do_not_fail_a_choice() -> None:
    """The thread of the log explains while the kubelet asks."""
    found = placed(H100)
    current = found._current
    assert current is not None
    choices = current.choices

    class Compared(Variant, frozen=True):
        """A key that has another thread's variant added while it is compared."""

        def __ne__(self, other: object) -> bool:
            choices[Variant(policy=Policy.NUMA_FIRST)] = choices[USUAL]
            return True

        __hash__ = Variant.__hash__

    choices[Compared(policy=Policy.PACKED)] = choices[USUAL]
    assert found.prefer(H100_IDS, [], 1, Variant(taken_hcas=frozenset()))


def test_allocators_of_variants_are_kept_up_to_a_bound_and_the_usual_one_always() -> None:
    found = placed(H100)
    usual = current(found).allocator
    variants = [Variant(taken_hcas=frozenset({hca.name})) for hca in H100_HCAS]
    variants += [Variant(policy=policy) for policy in Policy]
    assert len(variants) > MOST_VARIANTS
    kept = list[Any]()
    for number, variant in enumerate(variants):
        found.prefer(H100_IDS, [], 2, variant)
        kept.append(current(found).choices[variant])
        assert len(current(found).choices) == min(number + 1, MOST_VARIANTS) + 1
    found.prefer(H100_IDS, [], 2, variants[-1])
    assert [current(found).choices[one] for one in variants[-MOST_VARIANTS:]] == kept[
        -MOST_VARIANTS:
    ]
    assert current(found).choices[USUAL].allocator is usual


def test_variants_are_made_anew_with_the_snapshot() -> None:
    found, variant = placed(), Variant(policy=Policy.DISTRIBUTED)
    found.prefer(IDS, [], 2, variant)
    before = current(found).choices[variant]
    found.take(replace(DGX, node="renamed"), whole(DGX))
    assert current(found).choices[variant] is before
    changed = replace(DGX, gpus=(replace(DGX.gpus[0], numa_node=1), *DGX.gpus[1:]))
    found.take(changed, whole(changed))
    assert variant not in current(found).choices
