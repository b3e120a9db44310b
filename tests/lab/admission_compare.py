"""Where our verdicts and the kubelet's differ, and the smallest case in which they do."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.admission.admit import PodAdmission, admit
from nodetopo.model.pod import Pod
from nodetopo.model.snapshot import Snapshot
from tests.lab.admission_case import Case, is_settled, readable
from tests.lab.admission_kubelet import Outcome, held_memory, outcomes, snapshot

_See = Callable[[Case, Mapping[str, Any], Sequence[Pod]], Snapshot]
_CanSee = Callable[[Mapping[str, Any], Sequence[Pod]], bool]


class Difference(Struct, frozen=True):
    """One pod on which we and the kubelet disagree.

    Attributes:
        case: up to the step of that pod.
    """

    case: Case
    ours: str
    theirs: str

    def __str__(self) -> str:
        return f"ours: {self.ours}\ntheirs: {self.theirs}\n{readable(self.case)}"


def differences(
    case: Case, outcome: Outcome, see: _See = snapshot, can_see: _CanSee = lambda *_: True
) -> Iterator[Difference]:
    """Yield each pod of *case* that becomes something else than *outcome* says.

    Args:
        case, outcome: what was asked, and what the kubelet made of it.
        see: what is read of the node.
        can_see: whether that is enough in this state, while these pods are here.
    """
    assert not outcome.ended, f"{outcome.ended}\n{readable(case)}"
    here: list[Pod] = []
    for number, step in enumerate(case.steps):
        if isinstance(step, str):
            here = [pod for pod in here if pod.uid != step]
            continue
        before, after = outcome.states[number], outcome.states[number + 1]
        found = admit(see(case, before, here), [step]).pods[0]
        ours, theirs = _ours(found), _theirs(step, outcome.verdicts[number], after)
        if ours != theirs and can_see(before, here):
            yield Difference(replace(case, steps=case.steps[: number + 1]), str(ours), str(theirs))
        if outcome.verdicts[number]["admit"]:
            here.append(step)


def admissions(case: Case) -> int:
    """Return how many pods of *case* are admitted or not."""
    return sum(isinstance(step, Pod) for step in case.steps)


def _ours(found: PodAdmission) -> dict[str, Any]:
    if not found.admitted:
        missing = {"missing": found.missing} if found.admitted is None else {}
        return {"reason": found.reason, "message": _sorted_out(found.message or ""), **missing}
    return {
        one.name: (
            str(one.cpus),
            {name: sorted(ids) for name, ids in one.devices.items() if ids},
            sorted((it.kind, it.numa_nodes) for it in one.memory),
        )
        for one in found.containers
    }


def _theirs(pod: Pod, verdict: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    if not verdict["admit"]:
        return {"reason": verdict["reason"], "message": _sorted_out(verdict["message"])}
    uid = str(pod.uid)
    memory = held_memory(state).get(uid, {})
    devices = state["devices"].get(uid, {})
    cpus = state["cpus"].get(uid, {})
    return {
        one.name: (
            cpus.get(one.name, ""),
            {name: sorted(ids) for name, ids in devices.get(one.name, {}).items()},
            sorted((it.kind, it.numa_nodes) for it in memory.get(one.name, ())),
        )
        for one in pod.containers
    }


def _sorted_out(message: str) -> str:
    """Return a message without the resource: of several that lack, the kubelet names any."""
    return message.partition(" for ")[0] if "number of devices unavailable" in message else message


def smallest(
    difference: Difference, play: Callable[[list[Case]], list[Outcome]] = outcomes
) -> Difference:
    """Return a difference of fewer parts: everything is left out that it does not take."""
    is_smaller = True
    while is_smaller:
        is_smaller = False
        candidates = list(_simpler(difference.case))
        for case, outcome in zip(candidates, play(candidates), strict=True):
            if outcome.ended or not outcome.verdicts:
                continue
            found = next(differences(case, outcome), None)
            if found is not None:
                difference, is_smaller = found, True
                break
    return difference


def _simpler(case: Case) -> Iterator[Case]:
    for number in range(len(case.steps)):
        yield replace(case, steps=(*case.steps[:number], *case.steps[number + 1 :]))
    for name in case.cpu_options:
        yield replace(case, cpu_options={it: "true" for it in case.cpu_options if it != name})
    if case.topology_options:
        yield replace(case, topology_options={})
    plain = (
        replace(case, memory="None"),
        replace(case, cpu="none", cpu_options={}),
        replace(case, scope="container"),
    )
    yield from (one for one in plain if one != case)
    for number in range(len(case.devices)):
        yield replace(case, devices=(*case.devices[:number], *case.devices[number + 1 :]))
    for number, step in enumerate(case.steps):
        if isinstance(step, Pod):
            for pod in filter(is_settled, _simpler_pods(step)):
                yield replace(case, steps=(*case.steps[:number], pod, *case.steps[number + 1 :]))


def _simpler_pods(pod: Pod) -> Iterator[Pod]:
    for number, one in enumerate(pod.containers):
        others = (*pod.containers[:number], *pod.containers[number + 1 :])
        if others:
            yield replace(pod, containers=others)
        for name, amount in (one.requests or {}).items():
            rest = {key: it for key, it in (one.requests or {}).items() if key != name}
            halved = {**rest, name: amount // 2}
            for amounts in (rest, halved) if amount > 1 else (rest,):
                changed = replace(one, requests=amounts, limits=amounts)
                yield replace(
                    pod,
                    containers=(*pod.containers[:number], changed, *pod.containers[number + 1 :]),
                )
