"""Requests to every machine of up to eight GPUs get the best set by definition; all by night."""

from collections.abc import Mapping
from random import Random

import pytest

from nodetopo.allocation.rules import DEFAULT, Model, Policy, Rules
from nodetopo.machines.bundled import machine, names
from nodetopo.model.codec import decode
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.domains import Interconnect, interconnect
from tests.allocation.brute_proof import Proof, every_request
from tests.budget import cases
from tests.conftest import NODES

RANKED_EVERY = 20
"""Of so many answers one has its next best sets compared as well."""

MOST_REQUESTS = cases(300, 2_048)
"""Drawn of the 2,048 requests to a machine of eight GPUs; of those to a smaller one all."""


def _machines() -> Mapping[str, Snapshot]:
    composed = {
        path.parent.name: decode(path.read_text("utf-8")).snapshot
        for path in NODES.glob("*/snapshot.json")
    }
    known = {**composed, **{name: machine(name) for name in names()}}
    return {name: known[name] for name in sorted(known) if len(known[name].gpus) <= 8}


SMALL = _machines()
MESHES = [name for name in SMALL if interconnect(SMALL[name]) is Interconnect.MESH]
OF_EACH_SHAPE = (
    "dgx-1v",
    "dgx-a100",
    "rtxpro6000-pcie-8",
    "h100x8-nvswitch-2numa-broken",
    "h100x8-nvswitch-2numa-mig",
    "v100x8-vm-phb-2numa",
    "a100x6-pcie-bridged-crosssocket",
)


def wrong(name: str, rules: Rules) -> list[str]:
    """Free sets and sizes of the machine, with and without required GPUs."""
    snapshot, random = SMALL[name], Random(name)
    requests = list(every_request([gpu.index for gpu in snapshot.gpus], random))
    requests = random.sample(requests, min(MOST_REQUESTS, len(requests)))
    return Proof(snapshot, rules).wrong(requests, ranked_every=RANKED_EVERY)


@pytest.mark.parametrize("name", SMALL)
def test_the_answer_to_every_request_is_the_best_set(name: str) -> None:
    assert wrong(name, DEFAULT) == []


@pytest.mark.parametrize("policy", [policy for policy in Policy if policy is not Policy.BEST])
@pytest.mark.parametrize("name", OF_EACH_SHAPE)
def test_it_is_the_best_in_the_order_of_every_policy(name: str, policy: Policy) -> None:
    assert wrong(name, Rules(policy=policy)) == []


@pytest.mark.parametrize("name", MESHES)
def test_it_is_the_best_of_a_mesh_whose_gpus_relay(name: str) -> None:
    assert wrong(name, Rules(model=Model.RELAY)) == []


def test_machines_of_every_interconnect_are_proven() -> None:
    found = {interconnect(snapshot) for snapshot in SMALL.values()}
    assert found == {*Interconnect}
