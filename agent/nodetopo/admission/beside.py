"""The pods of one manifest on one node: which of them it takes together, and which only alone.

Roles of a job, such as a master and its workers, often take a whole node each. The second is then
no failure: another node takes it.
"""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.admission.device_manager import Preference
from nodetopo.admission.errors import Refusal
from nodetopo.admission.scope import PodOutcome, admit_pod
from nodetopo.admission.snapshot import NodeManagers
from nodetopo.model.pod import Pod

Apart = Callable[[int, int], bool]
"""Returns whether the scheduler keeps the pods at two positions, or the replicas of the pod at
one, off each other's node."""


Mates = Callable[[int], tuple[tuple[int, ...], ...]]
"""Returns for the pod at a position, for each condition, the positions of the pods of which the
scheduler puts it alongside one."""


def no_mates(_at: int) -> tuple[tuple[int, ...], ...]:
    """Return that a pod can be without any other."""
    return ()


def never_apart(_one: int, _other: int) -> bool:
    """Return that nothing keeps two pods apart."""
    return False


class Replicas(Struct, frozen=True, kw_only=True):
    """A pod and its replicas after the managers."""

    first: PodOutcome  # outcome of the first
    node: NodeManagers  # the managers after all that are admitted
    admitted: int | None  # their number; None where not all were tried
    refusal: Refusal | None  # of the first that is not admitted, if any


class Placed(Struct, frozen=True, kw_only=True):
    """The answer of the node for one pod and its replicas."""

    # Beside the pods before it; where it is only admitted alone, or not at all, on the node without
    # them.
    replicas: Replicas
    # Positions of the pods beside which it has no place; empty where it is admitted beside all of
    # them, or not at all.
    rivals: tuple[int, ...] = ()
    # Alongside `rivals`; None where the scheduler keeps it apart from them.
    refusal: Refusal | None = None
    is_spread: bool = False  # it has several replicas, which the scheduler keeps apart
    # Positions of the pods beside which the scheduler keeps it, and beside which the answer is.
    mates: tuple[int, ...] = ()


class Occupied:
    """A node that takes the pods of a manifest, one after the other."""

    def __init__(
        self,
        node: NodeManagers,
        prefer: Preference,
        most: int,
        apart: Apart,
        mates: Mates = no_mates,
    ) -> None:
        """Begin with *node*, which stays as it is.

        Args:
            node: the managers before any pod of the manifest.
            most: the number of replicas of one pod that are tried.
            apart: of the positions that :meth:`place` is given.
            mates: the same.
        """
        self._nodes = [node]  # before the first of `_held`, and after each of them
        self._held: list[tuple[int, Pod, str]] = []
        self._elsewhere: dict[int, tuple[tuple[int, Pod, str], tuple[int, ...]]] = {}  # and rivals
        self._prefer, self._most, self._apart, self._mates = prefer, most, apart, mates

    def place(self, number: int, pod: Pod, uid: str) -> Placed:
        """Admit *pod*, at position *number*, and its replicas: alongside the others, else alone.

        Alone is with the pods alongside which the scheduler keeps it. If one of those is admitted
        alone itself, the pod goes with it.

        A pod that is only admitted alone, or not at all, leaves no trace.
        """
        refusal: Refusal | None = None
        is_spread = (pod.replicas or 1) > 1 and self._apart(number, number)
        mates, away = self._mates_of(number)
        together = tuple(at for at, _, _ in mates)
        apart = tuple(at for at, _, _ in self._held if self._apart(at, number))
        rivals = tuple(dict.fromkeys((*away, *apart)))
        if not rivals:
            beside = self._admit(self._nodes[-1], number, pod, uid)
            if beside.first.refusal is None:
                self._held.append((number, pod, uid))
                self._nodes.append(beside.node)
            if beside.first.refusal is None or not self._held:
                return Placed(replicas=beside, is_spread=is_spread, mates=together)
            refusal = beside.first.refusal
        node = self._nodes[0]
        for mate in mates:
            node = self._admit(node, *mate).node
        alone = self._admit(node, number, pod, uid)
        if alone.first.refusal is not None:
            return Placed(replicas=alone, mates=together)
        rivals = rivals or self._in_the_way(number, pod, uid)
        rivals = tuple(at for at in rivals if at not in together)
        self._elsewhere[number] = ((number, pod, uid), rivals)
        return Placed(
            replicas=alone, rivals=rivals, refusal=refusal, is_spread=is_spread, mates=together
        )

    def _mates_of(self, number: int) -> tuple[list[tuple[int, Pod, str]], tuple[int, ...]]:
        """Return a pod for each condition of the pod at position *number*, those here first.

        And the positions beside which those elsewhere have no place. A condition that no admitted
        pod meets is left out.
        """
        found: dict[int, tuple[int, Pod, str]] = {}
        rivals: list[int] = []
        for positions in self._mates(number):
            here = next((it for it in self._held if it[0] in positions), None)
            away = next((at for at in self._elsewhere if at in positions), None)
            if here is not None:
                found[here[0]] = here
            elif away is not None:
                found[away], others = self._elsewhere[away]
                rivals += others
        return [found[at] for at in sorted(found)], tuple(rivals)

    def _in_the_way(self, number: int, pod: Pod, uid: str) -> tuple[int, ...]:
        """Return the positions of the first pods that leave no place for *pod*: one if it can be.

        There is a place before the first and none after the last, so that half of them at a time
        can be passed over.
        """
        free, full = 0, len(self._held)
        while full - free > 1:
            middle = (free + full) // 2
            is_free = self._admit(self._nodes[middle], number, pod, uid).first.refusal is None
            free, full = (middle, full) if is_free else (free, middle)
        last = self._held[free]
        by_itself = self._admit(self._nodes[0], *last).node
        if self._admit(by_itself, number, pod, uid).first.refusal is not None:
            return (last[0],)
        return tuple(at for at, _, _ in self._held[:full])

    def _admit(self, node: NodeManagers, number: int, pod: Pod, uid: str) -> Replicas:
        """Admit *pod* on *node*; of replicas that are kept apart one."""
        if not self._apart(number, number):
            return admit_replicas(node, pod, uid, self._prefer, self._most)
        return admit_replicas(node, replace(pod, replicas=1), uid, self._prefer, 1)


def admit_replicas(
    node: NodeManagers, pod: Pod, uid: str, prefer: Preference, most: int
) -> Replicas:
    """Admit *pod* and its replicas, at most *most* in all, on *node*, which stays as it is."""
    first = outcome = admit_pod(node, pod, uid, prefer)
    wanted, admitted = max(pod.replicas or 1, 1), 0
    while outcome.refusal is None and admitted < wanted:
        node, admitted = outcome.node, admitted + 1
        if admitted == min(wanted, most):
            break
        outcome = admit_pod(node, pod, f"{uid}#{admitted}", prefer)
    is_known = outcome.refusal is not None or admitted == wanted
    return Replicas(
        first=first,
        node=node,
        admitted=admitted if is_known else None,
        refusal=outcome.refusal,
    )
