"""Pods that want GPUs and HCAs, on the kubelet's own managers, with our plugins over real sockets.

``python -m tests.lab.joint_pairs --pods 500`` prints the share of GPU-HCA pairs that are near,
beside that of plugins that do not know of each other, and of the best that was possible.

``--shapes mixed`` has pods of one to three containers, one in seven of the later ones an init
container, whose numbers of GPUs and HCAs differ, and a third of which want one kind only; on
several machines, and with the specs of the pods besides.
"""

import argparse
import dataclasses
import json
import logging
import shlex
import subprocess
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import structlog
from msgspec import Struct

from nodetopo.components.gpus.plugins import PluginSet
from nodetopo.components.rdma.companion import HcaCompanion
from nodetopo.components.rdma.joint import JointPlacement
from nodetopo.components.rdma.plan import RdmaPlan
from nodetopo.components.rdma.resources import key_of
from nodetopo.kernel.places import Places
from nodetopo.kernel.requester import Requesters
from nodetopo.kernel.settings.declare import Settings
from nodetopo.model.codec import decode
from nodetopo.model.nvlink import Closeness
from nodetopo.model.pod import Container, ContainerKind, Pod
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.kubelet.podresources import PodResources
from nodetopo.probes.kubelet.state import DeviceCheckpoint
from nodetopo.rdma.pairing import Pairing
from nodetopo.rdma.rails import network_cards
from tests.generous_deadlines import generous_deadlines
from tests.lab.admission_case import pod_object
from tests.lab.build import binaries
from tests.lab.namespace import KUBELET_DIR, required_flags

NODES = Path(__file__).parents[1] / "nodes"
MACHINE = "h100x8-nvswitch-2numa-8cx7"
GPU, HCA = "nvidia.com/gpu", "rdma/hca"
POLICIES = ("none", "best-effort")
MIXED_POLICIES = (*POLICIES, "restricted")
MIXED_MACHINES = {
    "HGX H100": MACHINE,
    "HGX H200, 10 RoCE": "h200x8-nvswitch-2numa-10roce",
    "DGX A100, NPS4": "a100x8-nvswitch-8numa-10cx6",
    "DGX-1V, 4 HCAs": "v100x8-cubemesh-2numa-4cx4",
    "DGX-2, 8 HCAs": "v100x16-nvswitch-2numa-8cx",
}
INIT = 0.15
"""Share of init containers among the later containers of a pod of mixed shape."""

ALONE = 1 / 3
"""Share of containers of mixed shape that want one kind only."""
NEAR = Closeness.PXB
POOL: Mapping[str, Any] = {
    "resourceName": "hca",
    "rdmaHcaMax": 1000,
    "mode": "exclusive",
    "selectors": {"vendors": ["15b3"]},
}
SIZES = (1, 1, 2, 2, 3, 4)
"""GPUs, and as many HCAs, of a pod."""

_LIMIT_S = 900.0

_LIST_S = 60.0
"""Longest wait for a list of pods: a loaded machine must not make a guess of it."""

_PODS = "pods.sock"
"""The PodResources API of the managers, beside their checkpoints."""


class Kind(StrEnum):
    """The kind of a resource."""

    GPU = "gpu"
    HCA = "hca"


class Admitted(Struct, frozen=True, kw_only=True):
    """What one pod got.

    Attributes:
        first: which of the two kinds the kubelet asked for first.
        wanted: its pairs: in each container as many as there are of the fewer kind.
        near: of its pairs at :data:`NEAR` or nearer.
        far: of its pairs across sockets.
        possible: how many could have been, with what was free before it.
    """

    first: Kind
    wanted: int
    near: int
    far: int
    possible: int


@dataclasses.dataclass
class Run:
    """The pods of one run, and how the guesses about them turned out."""

    pods: list[Admitted] = dataclasses.field(default_factory=list)
    rejected: int = 0
    guesses: int = 0

    def share(self, kind: Kind | None = None) -> float:
        """Return the share of near pairs, of the pods whose first request was of *kind*."""
        pods = [pod for pod in self.pods if kind in (None, pod.first)]
        return sum(pod.near for pod in pods) / sum(pod.wanted for pod in pods)

    def across(self) -> float:
        """Return the share of pairs across sockets."""
        return sum(pod.far for pod in self.pods) / sum(pod.wanted for pod in self.pods)

    def best(self) -> float:
        """Return the share that was possible."""
        pairs = sum(pod.wanted for pod in self.pods)
        return sum(pod.possible for pod in self.pods) / pairs


def machine(shape: str = MACHINE) -> Snapshot:
    """Return the machine of a directory below ``tests/nodes``."""
    return decode((NODES / shape / "snapshot.json").read_text("utf-8")).snapshot


def play(
    snapshot: Snapshot,
    policy: str,
    pods: int,
    seed: int,
    *,
    is_joint: bool,
    alone: float = 0.0,
    is_listed: bool = True,
    is_mixed: bool = False,
    has_specs: bool = False,
) -> Run:
    """Admit *pods* random pods on the real managers under the Topology Manager's *policy*.

    *alone* is the share of pods that want GPUs or HCAs only. They come at once one after the
    other here, which on a node takes seconds: it is the worst case for guesses, which are made
    where the kubelet does not list pods, *is_listed*.
    """
    cards, order = len(offered_cards(snapshot)), list[Kind]()
    if is_mixed:
        steps = mixed_plan(pods, len(snapshot.gpus), cards, seed)
    else:
        steps = plan(pods, len(snapshot.gpus), seed, alone)
    specs = {  # as the daemon knows them
        (pod.name, one.name): one.limits
        for pod in _pods(steps)
        for one in pod.containers
        if not _has_init(pod)
    }
    with tempfile.TemporaryDirectory(prefix="nt-") as home, ExitStack() as stack:
        sockets = Path(home) / "device-plugins"
        sockets.mkdir()
        for plugins, joint in stack.enter_context(
            serving(Path(home), sockets, is_joint=is_joint, is_listed=is_listed)
        ):
            _record(joint, order)
            if has_specs:
                joint._requesters.requests = lambda pod, name: specs.get((pod[1], name))
            plugins.take(snapshot)
        question = {
            "machine": node_info(snapshot),
            "topology": {"policy": policy, "scope": "container"},
            "cpu": {"policy": "none", "amount": "1"},
            "memory": {"policy": "None", "amount": "1Gi"},
            "await": {GPU: len(snapshot.gpus), HCA: cards},
            "podResources": str(KUBELET_DIR / _PODS),
            "steps": [
                {"remove": step} if isinstance(step, str) else {"admit": pod_object(step)}
                for step in steps
            ],
        }
        outcome = managers(Path(home), question)
        return _judged(snapshot, steps, outcome, order)


def plan(pods: int, gpus: int, seed: int, alone: float = 0.0) -> list[Pod | str]:
    """Return pods that come, and the names of those that go to make room for them."""
    random, steps, running = Random(seed), list[Pod | str](), dict[str, int]()
    for number in range(pods):
        size = random.choice(SIZES)
        while sum(running.values()) + size > gpus or (running and random.random() < 0.2):
            name = random.choice(sorted(running))
            del running[name]
            steps.append(name)
        name = f"pod-{number}"
        running[name] = size
        limits = {GPU: size, HCA: size}
        if random.random() < alone:
            del limits[random.choice((GPU, HCA))]
        container = Container(name="work", kind=ContainerKind.APP, requests=limits, limits=limits)
        steps.append(Pod(namespace="default", name=name, uid=name, containers=(container,)))
    return steps


def mixed_plan(pods: int, gpus: int, hcas: int, seed: int) -> list[Pod | str]:
    """Return pods of several containers that come, and the names of those that go."""
    random, steps, running = Random(seed), list[Pod | str](), dict[str, Counter[str]]()
    for number in range(pods):
        containers = [
            _mixed_container(random, at, gpus, hcas) for at in range(random.choice((1, 1, 1, 2, 3)))
        ]
        total = sum((Counter(one.limits) for one in containers), Counter[str]())
        if total[GPU] > gpus or total[HCA] > hcas:
            continue
        while running and (
            random.random() < 0.2
            or any(
                sum(one[kind] for one in running.values()) + total[kind] > most
                for kind, most in ((GPU, gpus), (HCA, hcas))
            )
        ):
            name = random.choice(sorted(running))
            del running[name]
            steps.append(name)
        name = f"pod-{number}"
        running[name] = total
        steps.append(Pod(namespace="default", name=name, uid=name, containers=tuple(containers)))
    return steps


def _mixed_container(random: Random, at: int, gpus: int, hcas: int) -> Container:
    wanted = {GPU: random.choice(SIZES)}
    same = wanted[GPU]
    wanted[HCA] = random.choice((same, same, same, max(1, same // 2), same + 1))
    if random.random() < ALONE:
        del wanted[random.choice((GPU, HCA))]
    is_init = at > 0 and random.random() < INIT
    limits = {kind: min(wanted[kind], {GPU: gpus, HCA: hcas}[kind]) for kind in wanted}
    return Container(
        name=f"c{at}",
        kind=ContainerKind.INIT if is_init else ContainerKind.APP,
        requests=limits,
        limits=limits,
    )


def _has_init(pod: Pod) -> bool:
    return any(one.kind is ContainerKind.INIT for one in pod.containers)


def _pods(steps: Iterable[Pod | str]) -> Iterator[Pod]:
    return (step for step in steps if not isinstance(step, str))


@contextmanager
def serving(
    home: Path,
    sockets: Path,
    *,
    is_joint: bool,
    is_listed: bool = False,
    pools: Sequence[Mapping[str, Any]] = (POOL,),
) -> Iterator[Sequence[tuple[PluginSet, JointPlacement]]]:
    """Serve GPUs and *pools* of HCAs by one set of plugins, or by two that share nothing."""
    path = home / "rdma.json"
    path.write_text(json.dumps({"configList": list(pools)}), "utf-8")

    def settings(**changes: Any) -> Settings:
        return Settings(
            node_name="n",
            device_plugin_dir=sockets,
            device_list_strategy=("cdi-cri",),
            sysfs_root=home,
            **changes,
        )

    both = [settings(rdma_config=path)]
    apart = [settings(), settings(offer_gpus="never", rdma_config=path)]
    with generous_deadlines(), ExitStack() as stack:
        sets = []
        for one in both if is_joint else apart:
            plan = RdmaPlan.of(one, is_simulated=False)
            requesters = Requesters()
            if is_joint and is_listed:
                kubelet = PodResources(home / _PODS, timeout_s=_LIST_S, gate=None)
                stack.callback(kubelet.close)
                checkpoint = DeviceCheckpoint(sockets)
                requesters = Requesters(kubelet.assigned, records=checkpoint.records)
            companion = HcaCompanion(
                plan, Places.of(one, sockets, is_simulated=False), requesters=requesters
            )
            plugins = PluginSet(
                one, sockets, None, companion=partial(_same, companion), requesters=requesters
            )
            stack.callback(plugins.stop)
            sets.append((plugins, companion.joint))
        yield sets


def _same(companion: HcaCompanion) -> HcaCompanion:
    return companion


def _record(joint: JointPlacement, order: list[Kind]) -> None:
    gave = joint._requesters.gave

    def recorded(resource: str, ids: Collection[str]) -> None:
        order.append(Kind.GPU if resource == GPU else Kind.HCA)
        gave(resource, ids)

    joint._requesters.gave = recorded  # type: ignore[method-assign]


def managers(home: Path, question: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what the kubelet's managers make of *question*, with plugins in *home*."""
    there = shlex.quote(str(KUBELET_DIR))
    lines = ["set -e", "mount -t tmpfs lab /var/lib", f"mkdir {there}"]
    lines += [f"mount --bind {shlex.quote(str(home))} {there}", 'exec "$@"']
    command = ["unshare", *required_flags(), "sh", "-c", "\n".join(lines), "lab"]
    done = subprocess.run(
        [*command, str(binaries() / "admission")],
        input=json.dumps(question) + "\n",
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
        env={"TMPDIR": str(KUBELET_DIR), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    outcome: dict[str, Any] = json.loads(done.stdout)
    assert not outcome.get("refusal"), outcome["refusal"]
    assert not outcome.get("panic"), outcome["panic"]
    return outcome


def _judged(
    snapshot: Snapshot,
    steps: Sequence[Pod | str],
    outcome: Mapping[str, Any],
    order: Sequence[Kind],
) -> Run:
    pairing, run = Pairing(snapshot=snapshot), Run()
    gpus = {gpu.id: at for at, gpu in enumerate(snapshot.gpus)}
    hcas = {str(hca.pci): at for at, hca in enumerate(snapshot.hcas or ())}
    calls, cards = iter(order), offered_cards(snapshot)
    of_init = {pod.uid for pod in _pods(steps) if _has_init(pod)}
    before: Mapping[str, Any] = {}
    for step, verdict, state in zip(steps, outcome["verdicts"], outcome["states"][1:], strict=True):
        held = state["devices"]
        if not isinstance(step, str):
            if not verdict["admit"]:
                run.rejected += 1
                continue
            check_unshared(held, of_init)
            first, *_ = (next(calls) for one in step.containers for _ in one.limits or ())
            given = [
                (
                    [gpus[name] for name in held[step.uid][one.name][GPU]],
                    [hcas[key_of(name)] for name in held[step.uid][one.name][HCA]],
                )
                for one in step.containers
                if one.kind is ContainerKind.APP and len(one.limits or ()) == 2
            ]
            used_gpus = {gpus[name] for name in _ids(before, GPU)}
            used_hcas = {hcas[key_of(name)] for name in _ids(before, HCA)}
            free = most_near(
                pairing,
                [at for at in gpus.values() if at not in used_gpus],
                [at for at in hcas.values() if at not in used_hcas and at in cards],
            )
            wanted = sum(min(map(len, both)) for both in given)
            far = sum(
                pair.closeness is Closeness.SYS for both in given for pair in pairing.matched(*both)
            )
            if given:
                near = sum(most_near(pairing, *both) for both in given)
                possible = min(wanted, free)
                run.pods.append(
                    Admitted(first=first, wanted=wanted, near=near, far=far, possible=possible)
                )
        before = held
    return run


def check_unshared(held: Mapping[str, Any], of_init: Collection[str | None] = ()) -> None:
    """Check that no device is in two pods; or in two containers, but for the pods *of_init*."""
    for resource in (GPU, HCA):
        ids = list[str]()
        for uid in held:
            own = list(_ids({uid: held[uid]}, resource))
            ids += set(own) if uid in of_init else own
        assert len(ids) == len(set(ids)), f"{resource} given twice: {sorted(ids)}"


def offered_cards(snapshot: Snapshot) -> Sequence[int]:
    """Return the positions of the HCAs of the pool: those of the GPUs' network."""
    return network_cards(snapshot) or range(len(snapshot.hcas or ()))


def most_near(pairing: Pairing, gpus: Sequence[int], hcas: Sequence[int]) -> int:
    """Return the most pairs that are near, if each GPU and each HCA is in one (Kuhn, 1955)."""
    gpu_of = dict[int, int]()

    def has_pair(gpu: int, tried: set[int]) -> bool:
        for hca in hcas:
            level = pairing.closeness.get((gpu, hca))
            if level is None or level > NEAR or hca in tried:
                continue
            tried.add(hca)
            if hca not in gpu_of or has_pair(gpu_of[hca], tried):
                gpu_of[hca] = gpu
                return True
        return False

    return sum(has_pair(gpu, set()) for gpu in gpus)


def _ids(held: Mapping[str, Any], resource: str) -> Iterator[str]:
    for containers in held.values():
        for devices in containers.values():
            yield from devices.get(resource, ())


def node_info(snapshot: Snapshot) -> dict[str, Any]:
    """Return what cadvisor would show of the machine's NUMA nodes."""
    nodes = []
    for number, node in enumerate(snapshot.numa_nodes or ()):
        cores = [
            {"core_id": at, "thread_ids": [cpu], "socket_id": number}
            for at, cpu in enumerate(list(node.cpus)[:4])
        ]
        nodes.append(
            {
                "node_id": node.id,
                "memory": 64 << 30,
                "distances": list(node.distances or ()),
                "cores": cores,
            }
        )
    return {"num_cores": 4 * len(nodes), "num_sockets": len(nodes), "topology": nodes}


def table(pods: int, seed: int, alone: float) -> Iterator[str]:
    """Yield the rows of the table."""
    snapshot = machine()
    yield "| Topology Manager | plugins | pods | GPUs first | HCAs first | all | possible | SYS |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    kinds = (("uncoordinated", False, False), ("guessed", True, False), ("joint", True, True))
    for policy in POLICIES:
        for name, is_joint, is_listed in kinds:
            run = play(
                snapshot, policy, pods, seed, is_joint=is_joint, alone=alone, is_listed=is_listed
            )
            shares = [
                run.share(Kind.GPU),
                run.share(Kind.HCA),
                run.share(),
                run.best(),
                run.across(),
            ]
            cells = " | ".join(f"{share:.1%}" for share in shares)
            yield f"| {policy} | {name} | {len(run.pods)} | {cells} |"


def mixed_table(pods: int, seed: int) -> Iterator[str]:
    """Yield the rows of the table of pods with several containers."""
    yield "| machine | Topology Manager | specs | pods | rejected | near | possible | of possible |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for name, shape in MIXED_MACHINES.items():
        for policy in MIXED_POLICIES:
            for has_specs in (False, True):
                run = play(
                    machine(shape),
                    policy,
                    pods,
                    seed,
                    is_joint=True,
                    is_mixed=True,
                    has_specs=has_specs,
                )
                shares = (run.share(), run.best(), run.share() / run.best())
                cells = " | ".join(f"{share:.1%}" for share in shares)
                words = f"{policy} | {'yes' if has_specs else 'no'}"
                yield f"| {name} | {words} | {len(run.pods)} | {run.rejected} | {cells} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--alone", type=float, default=0.0, help="share of pods with one kind only")
    parser.add_argument("--shapes", choices=("equal", "mixed"), default="equal")
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    is_mixed = args.shapes == "mixed"
    rows = (
        mixed_table(args.pods, args.seed) if is_mixed else table(args.pods, args.seed, args.alone)
    )
    for row in rows:
        print(row, flush=True)


if __name__ == "__main__":
    main()
