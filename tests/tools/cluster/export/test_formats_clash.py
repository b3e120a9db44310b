"""Values that a scheduler would misread, and what `export` says of them."""

from nodetopo.tools.cluster.export.formats import ExportOptions, export
from nodetopo.tools.cluster.levels import (
    DotClash,
    SharedValue,
    dot_clashes,
    same_hosts,
    shared_values,
)
from nodetopo.tools.cluster.node import ClusterNode
from tests.tools.cluster.labelled import CLUSTER, DOMAIN, HOSTNAME, PARTITION, RUNAI, bare, tray

KEYS = ("a/row", "a/rack", HOSTNAME)


def at(name: str, row: str, rack: str) -> ClusterNode:
    labels = {"a/row": row, "a/rack": rack, "nvidia.com/gpu.present": "true"}
    return bare(name, **labels)


DOTTED = (at("n1", "r.1", "a"), at("n2", "r", "1.a"))
REUSED = (at("n1", "r1", "a"), at("n2", "r2", "a"), at("n3", "r2", "b"))


def warnings(scheduler: str, nodes: tuple[ClusterNode, ...], form: str | None = None) -> list[str]:
    options = ExportOptions(levels=KEYS, form=form, cluster_id=RUNAI)
    remarks = export(scheduler, nodes, options).remarks
    return [remark.text for remark in remarks if remark.kind == "warning"]


def test_places_whose_values_join_to_one_name_clash() -> None:
    clash = DotClash(key="a/rack", name="r.1.a", paths=(("r", "1.a"), ("r.1", "a")))
    assert dot_clashes(DOTTED, KEYS) == (clash,)


def test_a_dot_that_repeats_the_parent_is_no_clash() -> None:
    nodes = [tray(f"n{number}", number) for number in range(3)]
    assert nodes[0].labels[PARTITION] == f"{CLUSTER}.0"
    assert dot_clashes(nodes, (DOMAIN, PARTITION, HOSTNAME)) == ()


def test_a_value_below_two_places_is_shared_and_the_unique_ones_are_not() -> None:
    shared = SharedValue(key="a/rack", value="a", parent_key="a/row", parents=("r1", "r2"))
    assert shared_values(REUSED, KEYS) == (shared,)


def test_what_lies_below_a_shared_value_is_not_blamed_for_it() -> None:
    nodes = [bare(f"n{b}", **{"a/block": b, "a/row": "r", "a/rack": "k"}) for b in "xy"]
    found = shared_values(nodes, ("a/block", "a/row", "a/rack"))
    assert [(one.key, one.parents) for one in found] == [("a/row", ("x", "y"))]


def test_kai_and_what_is_built_on_it_are_warned_of_dots_and_others_are_not() -> None:
    text = "at a/rack, r/1.a and r.1/a are one place, 'r.1.a', to KAI: take values without dots"
    found = {name: warnings(name, DOTTED) for name in ("kai", "grove", "runai", "kueue", "lws")}
    assert found == {"kai": [text], "grove": [text], "runai": [text], "kueue": [], "lws": []}


def test_a_reused_name_is_one_place_to_some_and_several_to_others() -> None:
    where = "a/rack=a lies in a/row r1, r2: "
    assert warnings("kai", REUSED) == [where + "a separate place in each"]
    assert warnings("kueue", REUSED) == [where + "a separate place in each"]
    assert warnings("volcano", REUSED) == [where + "a separate place in each"]
    merged = [where + "one place to this scheduler"]
    assert warnings("volcano", REUSED, "discovery") == merged
    assert [warnings(name, REUSED) for name in ("kubernetes", "lws", "topograph")] == [merged] * 3


def test_five_clashes_are_told_and_the_others_counted() -> None:
    nodes = tuple(
        at(f"n{number}-{row}", row, f"a{number}") for number in range(7) for row in ("r1", "r2")
    )
    found = warnings("kai", nodes)
    assert [text.partition(" ")[0] for text in found[:5]] == [f"a/rack=a{n}" for n in range(5)]
    assert found[5:] == ["so it is with 2 more values of a/rack: `nodetopo doctor` names them"]
    dotted = tuple(
        node
        for number in range(6)
        for node in (at(f"x{number}", f"r.{number}", "a"), at(f"y{number}", "r", f"{number}.a"))
    )
    more = "so it is with 1 more places that are one to KAI: `nodetopo doctor` names them"
    assert more in warnings("kai", dotted)


def test_nodes_of_one_host_name_are_one_place_to_every_scheduler() -> None:
    twins = tuple(bare(name, **{HOSTNAME: "ubuntu"}) for name in ("n2", "n1"))
    assert same_hosts((*twins, bare("n3")), (HOSTNAME,)) == (("ubuntu", ("n1", "n2")),)
    assert same_hosts(twins, ("a/rack",)) == ()
    remarks = export("kai", twins, ExportOptions(levels=(HOSTNAME,))).remarks
    assert [remark.text for remark in remarks if remark.kind == "warning"][1:] == [
        f"{HOSTNAME}=ubuntu is on n1, n2: one place to every scheduler"
    ]
