"""What the oracle allocates is what the real kube-scheduler allocates, device for device.

Claims come and go on Node objects that no kubelet is behind: the scheduler allocates a claim before
any pod starts. Whatever the scheduler answers, the oracle has answered before, from the same slices
and the same claims before that one.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from nodetopo.components.dra.devices import HELD, Conditions
from nodetopo.components.dra.form import Form
from nodetopo.components.dra.pool import Pool
from nodetopo.components.dra.slices import changes
from nodetopo.machines.bundled import machine
from nodetopo.model.dra import NUMA_NODE, PCIE_ROOT
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.cluster.export.dra import claim_spec
from tests.deploy.kustomize import documents
from tests.lab import deployment
from tests.lab.api import Object
from tests.lab.claims import CLAIMS, CLASSES, SLICES, Claims, pod_with, request, spec
from tests.lab.cluster import Cluster
from tests.lab.dra_allocator import Allocated, DraAllocator
from tests.lab.waiting import wait_for
from tests.tools.cluster.export.dra_machines import slices as nvidia_slices

pytestmark = pytest.mark.lab

Json = Mapping[str, Any]

_GPUS = 8
_STEPS = 14
_LEAVES = 0.35
"""The chance that a step ends a job. Then there are up to eight jobs, and ever other GPUs free."""

_SINCE = "2026-01-01T00:00:00Z"
_NOTHING_FITS = "cannot allocate all claims"
"""What the scheduler says of a node (kubernetes v1.36 plugins/dynamicresources Filter)."""

_THEIRS = tuple(
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{name}"'}}]},
    }
    for name in ("gpu.nvidia.com", "dra.net")
)
_OURS = documents(deployment.BASE / "components" / "dra" / "classes.yaml")
_BY_NAME = (*_THEIRS, *_OURS)

_FORMS = {
    "sets": Form(),
    "sets-only": Form(),
    "sizes": Form(sizes=(2, 4)),
    "beside-sets": Form(),
    "held": Form(),
    "singles": Form(has_sets=False),
    "bare": Form(has_sets=False, has_taints=False),
}
"""How our driver publishes, by the kind of a case. Of ``held`` and ``bare`` half the GPUs of each
NUMA node are held by pods with a device plugin."""


class Case(Struct, frozen=True, kw_only=True):
    """One stream of claims.

    Attributes:
        kind: how slices are published and how claims ask; see :func:`published`, :func:`asked`.
        seed: of the order of NVIDIA's devices, and of the stream.
        refuses: whether a claim does not fit though as many GPUs are free.
    """

    kind: str
    machine: str
    seed: int
    refuses: bool = False


_CASES = (
    *(Case(kind="shuffled", machine="dgx-h100", seed=seed) for seed in (1, 2)),
    Case(kind="sorted", machine="rtxpro6000-pcie-8", seed=3),
    *(Case(kind="near", machine="dgx-1v", seed=seed) for seed in (4, 5)),
    Case(kind="only-near", machine="dgx-1v", seed=25, refuses=True),
    Case(kind="nics", machine="dgx-h100", seed=7, refuses=True),
    *(Case(kind="exported", machine="dgx-1v", seed=seed) for seed in (8, 9)),
    Case(kind="exported", machine="rtxpro6000-pcie-8", seed=10),
    Case(kind="exported", machine="dgx-h100", seed=11),
    *(Case(kind="sets", machine="dgx-1v", seed=seed) for seed in (12, 13)),
    Case(kind="sets", machine="dgx-h100", seed=14),
    Case(kind="sets", machine="rtxpro6000-pcie-8", seed=15),
    Case(kind="sets-only", machine="dgx-h100", seed=21, refuses=True),
    Case(kind="sizes", machine="dgx-1v", seed=18),
    Case(kind="singles", machine="dgx-1v", seed=16),
    Case(kind="beside-sets", machine="dgx-h100", seed=19),
    Case(kind="bare", machine="dgx-1v", seed=20, refuses=True),
    Case(kind="held", machine="dgx-1v", seed=17, refuses=True),
)


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Cluster]:
    """A control plane of its own, with the controllers that free claims and without a kubelet."""
    del namespaces
    lab = Cluster()
    lab.start()
    try:
        lab.control_plane.start_claim_controllers()
        for each in _BY_NAME:
            lab.api.create(CLASSES, each)
        yield lab
    finally:
        lab.stop()


def add_node(lab: Cluster, name: str) -> None:
    """Add a Node that is Ready, without anything behind it."""
    labels = {"kubernetes.io/hostname": name}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    lab.api.create("/api/v1/nodes", body)
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    status = {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Lab", "message": "a lab"}],
    }
    lab.api.merge(f"/api/v1/nodes/{name}/status", {"status": status})


def published(kind: str, snapshot: Snapshot, node: str, seed: int) -> Sequence[Object]:
    """Return the slices of *node*: of NVIDIA's driver (and dranet's), or ours."""
    if kind in _FORMS:
        held = [gpu.id for gpu in snapshot.gpus[::2]] if kind in ("held", "bare") else []
        pool = Pool.of(snapshot, snapshot.gpus, form=_FORMS[kind])
        now = Conditions(held=frozenset(held))
        now = replace(now, since=dict.fromkeys(now.tainted, _SINCE))
        applied = changes(node, None, pool.counter_sets, pool.groups((), now), {}).applied
        return [dict(each) for each in applied]
    found = nvidia_slices(snapshot, node, seed=seed, nics=kind == "nics")
    if kind == "sorted":
        (one,) = found
        devices = sorted(one["spec"]["devices"], key=lambda it: str(it["name"]))
        return [{**one, "spec": {**one["spec"], "devices": devices}}]
    return found


def asked(kind: str, snapshot: Snapshot, size: int) -> Json:
    """Return the specification of a claim for *size* GPUs."""
    plain = {"deviceClassName": "gpu.nvidia.com", "count": size}
    exactly = {"name": "gpus", "exactly": plain}
    single = {**plain, "deviceClassName": "gpu.nodetopo.io"}
    if kind in ("sets-only", "held"):
        return spec(request(size))
    if kind in ("sets", "sizes"):
        alternatives = [
            {"name": "set", **request(size)["exactly"]},
            {"name": "any", **single},
        ]
        return spec({"name": "gpus", "firstAvailable": alternatives})
    if kind in ("singles", "beside-sets", "bare"):
        return spec({"name": "gpus", "exactly": single})
    if kind == "exported":
        return claim_spec(snapshot, size)
    if kind == "near":
        alternatives = [{"name": "near", **plain}, {"name": "any", **plain}]
        one = {"name": "gpus", "firstAvailable": alternatives}
        return _matched(spec(one), NUMA_NODE, "gpus/near")
    if kind == "only-near":
        return _matched(spec(exactly), NUMA_NODE, "gpus")
    if kind == "nics":
        nics = {"name": "nics", "exactly": {"deviceClassName": "dra.net", "count": size}}
        attribute = PCIE_ROOT if size == 1 else NUMA_NODE
        return _matched(spec(exactly, nics), attribute, "gpus", "nics")
    return spec(exactly)


def _matched(claimed: Json, attribute: str, *requests: str) -> Json:
    constraint = {"requests": list(requests), "matchAttribute": attribute}
    return {"devices": {**claimed["devices"], "constraints": [constraint]}}


@pytest.mark.parametrize("case", _CASES, ids=lambda it: f"{it.kind}-{it.machine}-{it.seed}")
def test_the_oracle_allocates_what_the_scheduler_does(lab: Cluster, case: Case) -> None:
    snapshot, draw = machine(case.machine), Random(case.seed)
    node = f"{case.kind}-{case.seed}"
    add_node(lab, node)
    slices = published(case.kind, snapshot, node, case.seed)
    for each in slices:
        lab.api.create(SLICES, each)
    claims = Claims(lab.api)
    running: dict[str, int] = {}
    refused = 0
    with DraAllocator() as oracle:
        oracle.set_classes(_BY_NAME)
        oracle.publish(slices[::-1])  # which slice comes first is said by their names
        for step in range(_STEPS):
            left = _GPUS - sum(running.values())
            fitting = [size for size in (1, 2, 4) if size <= left]
            if running and (not fitting or draw.random() < _LEAVES):
                gone = draw.choice(list(running))
                end(lab, gone)
                oracle.free(gone)
                del running[gone]
                continue
            size, name = draw.choice(fitting), f"{node}-{step}"
            claimed = asked(case.kind, snapshot, size)
            expected = oracle.allocate(name, claimed, node)
            claims.create(name, claimed)
            lab.pods.create(pod_with(name, node, name))
            if expected is None:
                wait_for(f"{name} is refused", partial(is_refused, lab, name))
                assert granted(lab, name) is None
                end(lab, name)
                refused += 1
                continue
            found = wait_for(f"{name} is allocated", partial(granted, lab, name))
            assert found == expected, f"{size} GPUs beside {running}"
            running[name] = size
    assert (refused > 0) == case.refuses
    for name in running:
        end(lab, name)


@pytest.mark.parametrize(
    "form",
    [Form(has_admin=True), Form(has_sets=False, has_admin=True)],
    ids=["sets", "singles"],
)
def test_monitoring_is_allocated_beside_users_and_taints(namespaces: None, form: Form) -> None:
    del namespaces
    snapshot = machine("dgx-h100")
    ids = [gpu.id for gpu in snapshot.gpus]
    pool = Pool.of(snapshot, snapshot.gpus, form=form)
    now = Conditions(held=frozenset(ids[:1]), since={(ids[0], HELD): _SINCE})
    slices = changes("n", None, pool.counter_sets, pool.groups((), now), {}).applied
    whole = {"deviceClassName": "gpu.nodetopo.io", "count": 7}
    monitoring = {
        "deviceClassName": "admin.nodetopo.io",
        "allocationMode": "All",
        "adminAccess": True,
    }
    with DraAllocator() as oracle:
        oracle.set_classes(_BY_NAME)
        oracle.publish(slices)
        users = oracle.allocate("users", spec({"name": "gpus", "exactly": whole}), "n")
        found = oracle.allocate("monitoring", spec({"name": "gpus", "exactly": monitoring}), "n")
    assert users is not None
    assert not any(it.device.startswith("admin-") for it in users)
    assert found is not None
    assert len(found) == 8
    assert all(it.device.startswith("admin-") for it in found)


@pytest.mark.parametrize("name", ["gpu", "gpus", "mig"])
def test_no_other_class_selects_devices_for_monitoring(namespaces: None, name: str) -> None:
    del namespaces
    snapshot = machine("dgx-h100")
    pool = Pool.of(snapshot, snapshot.gpus, form=Form(has_admin=True))
    groups = [it for it in pool.groups((), Conditions()) if it.name == "admin"]
    slices = changes("n", None, [], groups, {}).applied
    asked_for = {"deviceClassName": f"{name}.nodetopo.io", "count": 1}
    with DraAllocator() as oracle:
        oracle.set_classes(_BY_NAME)
        oracle.publish(slices)
        assert oracle.allocate("c", spec({"name": "gpus", "exactly": asked_for}), "n") is None


def granted(lab: Cluster, claim: str) -> tuple[Allocated, ...] | None:
    """Return what *claim* was allocated: devices, and the requests or alternatives they are for."""
    allocation = lab.api.get(f"{CLAIMS}/{claim}").get("status", {}).get("allocation")
    if allocation is None:
        return None
    return tuple(
        Allocated(**{key: one[key] for key in ("request", "driver", "pool", "device")})
        for one in allocation["devices"]["results"]
    )


def is_refused(lab: Cluster, pod: str) -> bool:
    """Tell whether the scheduler found that the claims of *pod* fit nowhere."""
    conditions = lab.pods.get(pod)["status"].get("conditions", ())
    return any(
        it.get("reason") == "Unschedulable" and _NOTHING_FITS in it.get("message", "")
        for it in conditions
    )


def end(lab: Cluster, name: str) -> None:
    """Delete the pod *name* and its claim; return when the claim is gone."""
    lab.pods.delete(name)
    lab.api.delete(f"{CLAIMS}/{name}")
    wait_for(f"claim {name} is gone", lambda: lab.api.find(f"{CLAIMS}/{name}") is None)
