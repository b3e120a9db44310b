"""What is made of NVLinks that still train: nothing, wherever links have a say."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.checks.engine import evaluate
from nodetopo.checks.rule import Suite, Verdict
from nodetopo.components.dra.devices import Conditions
from nodetopo.components.dra.form import Form
from nodetopo.components.dra.pool import Pool
from nodetopo.components.labels.catalogue import labels
from nodetopo.components.labels.loop import desired_labels
from nodetopo.components.labels.rules import LabelRules
from nodetopo.machines.bundled import machine
from nodetopo.model.gpu import Fabric, FabricState
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.node_rules import node_rules
from nodetopo.topology.links import nvlinks_between, training_gpus

NAMES = ["dgx-h100", "gb200-nvl72", "hgx-b200", "h100-vm-8"]
"""Machines whose GPUs register with a fabric."""

training = pytest.mark.parametrize(
    ("name", "state"),
    [
        (name, state)
        for name in NAMES
        for state in (FabricState.NOT_STARTED, FabricState.IN_PROGRESS)
    ],
)


def down(name: str, state: FabricState | None = None) -> Snapshot:
    """Return a machine whose NVLinks are all down; *state* of the fabric, or as it is."""
    node = machine(name)
    links = [replace(link, is_active=False, version=None) for link in node.nvlinks or ()]
    gpus = [gpu if state is None else replace(gpu, fabric=Fabric(state=state)) for gpu in node.gpus]
    return replace(node, nvlinks=tuple(links), gpus=tuple(gpus))


def of_links(whole: dict[str, Any], dead: dict[str, Any]) -> set[str]:
    """Return what depends on links: what differs, and what is named for them."""
    return {
        key
        for key in whole.keys() | dead.keys()
        if whole.get(key) != dead.get(key) or "nvlink" in key.lower()
    }


@training
def test_no_label_is_made_of_them(name: str, state: FabricState) -> None:
    derived = of_links(labels(machine(name)), labels(down(name)))
    assert {"gpu.topology/nvlink-gpus", "gpu.topology/shape", "gpu.topology/topology-ok"} <= derived
    waiting = down(name, state)
    assert derived & labels(waiting).keys() == set()
    assert desired_labels(waiting, LabelRules()).annotations is None


@training
def test_no_attribute_of_dra_is_made_of_them(name: str, state: FabricState) -> None:
    def attributes(node: Snapshot) -> dict[str, Any]:
        groups = Pool.of(node, node.gpus, form=Form(has_sets=False)).groups((), Conditions())
        devices = [device for group in groups for device in group.devices]
        return {key: it for device in devices for key, it in device["attributes"].items()}

    derived = of_links(attributes(machine(name)), attributes(down(name)))
    assert "nvlinkIsland" in derived
    assert derived & attributes(down(name, state)).keys() == set()


@training
def test_no_check_judges_them(name: str, state: FabricState) -> None:
    def verdicts(node: Snapshot) -> dict[str, Verdict | None]:
        report = evaluate(node, (*node_rules(Suite.HEALTH), *node_rules(Suite.AUDIT)))
        return {
            result.rule.code: None if result.skipped else result.verdict
            for result in report.results
        }

    whole, dead, waiting = (
        verdicts(machine(name)),
        verdicts(down(name)),
        verdicts(down(name, state)),
    )
    fails = {rule for rule, verdict in dead.items() if verdict is Verdict.FAIL != whole[rule]}
    assert "NVL-001" in fails
    assert {rule for rule in fails if waiting[rule] is Verdict.FAIL} == set()
    assert waiting["NVL-004"] is Verdict.FAIL  # says that the registration goes on


@training
def test_no_figure_shows_them_as_absent(name: str, state: FabricState) -> None:
    waiting = down(name, state)
    assert set(nvlinks_between(waiting).values()) == {None}


def test_links_that_are_up_count_while_their_gpu_registers() -> None:
    node = machine("dgx-h100")
    gpus = [replace(gpu, fabric=Fabric(state=FabricState.IN_PROGRESS)) for gpu in node.gpus]
    registering = replace(node, gpus=tuple(gpus))
    assert training_gpus(registering) == frozenset()
    assert nvlinks_between(registering) == nvlinks_between(node)
