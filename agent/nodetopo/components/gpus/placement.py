"""The placement of one resource: which devices the kubelet should choose, and why."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import structlog
from msgspec import Struct
from msgspec.structs import replace

from nodetopo.allocation.account import account, shared_account
from nodetopo.allocation.allocator import Allocation, Allocator, preferred
from nodetopo.allocation.bandwidth import with_measured_pairs
from nodetopo.allocation.explain import Explanation, names
from nodetopo.allocation.facts import facts
from nodetopo.allocation.measured import BandwidthTable, coverage
from nodetopo.allocation.requests import usable
from nodetopo.allocation.rules import Model, Policy, Rules
from nodetopo.allocation.shared.allocator import SharedAllocator
from nodetopo.allocation.shared.explain import SharedExplanation
from nodetopo.deviceplugin.allocation_log import Asked
from nodetopo.deviceplugin.resources import Resource
from nodetopo.errors import AgentError, InputError
from nodetopo.model.gpu_health import HealthView
from nodetopo.model.snapshot import Snapshot

_Allocator: TypeAlias = Allocator | SharedAllocator

_ALL_HEALTHY: HealthView = MappingProxyType({})

MOST_VARIANTS = 8
"""Allocators that are kept for other policies and HCAs in use; each has computed some 100 KiB."""

ANSWERS = 32
"""Answers that are remembered until their line is written, as many as the log remembers."""


class Variant(Struct, frozen=True, kw_only=True):
    """What one request changes of the usual choice."""

    policy: Policy | None = None  # of the pod; ``None`` for the resource's
    # The container may get HCAs too, but for these names; ``None``: it gets none.
    taken_hcas: frozenset[str] | None = None


USUAL = Variant()


class _Reply(Struct, frozen=True, kw_only=True):
    """What an answer depended on, for its explanation."""

    variant: Variant = USUAL
    beside: tuple[str, ...] = ()  # devices of the pod's other containers


class _Choice(Struct, frozen=True, kw_only=True):
    """How one variant chooses, and why."""

    allocator: _Allocator
    explanation: Explanation | SharedExplanation


class _Current(Struct, frozen=True, kw_only=True):
    """The data for answers; replaced as a whole, so that readers need no lock."""

    snapshot: Snapshot
    resource: Resource
    degraded: frozenset[str]
    rules: Rules
    # By variant, the least recently made first; the usual one is always there.
    choices: dict[Variant, _Choice]

    @property
    def gpus(self) -> Mapping[str, str]:
        """The GPU of each device, by the ids of both."""
        return self.resource.gpus

    @property
    def allocator(self) -> _Allocator:
        """The usual one."""
        return self.choices[USUAL].allocator

    def choice(self, variant: Variant) -> _Choice:
        """Return how *variant* chooses."""
        found = self.choices.get(variant)
        if found is not None:
            return found
        snapshot, rules = self.snapshot, self.rules
        if variant.taken_hcas and snapshot.hcas is not None:
            left = [hca for hca in snapshot.hcas if hca.name not in variant.taken_hcas]
            snapshot = replace(snapshot, hcas=tuple(left))
        if variant.taken_hcas is not None:
            rules = replace(rules, with_hcas=True)
        if variant.policy is not None:
            rules = replace(rules, policy=variant.policy)
        found = _choice(snapshot, self.resource, rules)
        others = [one for one in self.choices.copy() if one != USUAL]  # other threads add theirs
        if len(others) >= MOST_VARIANTS:
            self.choices.pop(others[0], None)
        self.choices[variant] = found
        return found


class Placement:
    """Chooses among the devices of one resource; any thread can ask while another updates it."""

    def __init__(self, policy: Policy, model: Model, table: BandwidthTable | None = None) -> None:
        """Choose by *policy* and *model*; *table* holds measured bandwidths, if given."""
        self._settings = policy, model, table
        self._is_configured = True
        self._current: _Current | None = None
        self._answers: OrderedDict[frozenset[str], _Reply] = OrderedDict()

    @property
    def gpus(self) -> Mapping[str, str]:
        """The GPU of each device, by the ids of both; empty before the first snapshot."""
        current = self._current
        return {} if current is None else current.gpus

    def configure(self, policy: Policy, model: Model, table: BandwidthTable | None) -> None:
        """Choose by other settings from the next :meth:`take` on."""
        settings = policy, model, table
        self._is_configured = self._is_configured and settings == self._settings
        self._settings = settings

    def take(
        self, snapshot: Snapshot, resource: Resource, health: HealthView = _ALL_HEALTHY
    ) -> None:
        """Place the devices of *resource* on *snapshot* from now on.

        Devices of degraded GPUs are chosen only when no others are left. A snapshot without GPUs
        changes nothing, unless the settings have changed.

        The allocator is kept, with all that it has computed, while the facts that placement depends
        on are the same.
        """
        before = self._current if self._is_configured else None
        self._is_configured = True
        if not snapshot.gpus:
            self._current = before
            return
        if (
            before is not None
            and before.gpus == resource.gpus
            and [gpu.id for gpu in before.snapshot.gpus] == [gpu.id for gpu in snapshot.gpus]
            and usable(before.snapshot) == usable(snapshot)
            and before.allocator.facts
            == with_measured_pairs(facts(snapshot), before.rules.measured)
        ):
            choices, rules = before.choices, before.rules
        else:
            rules = placement_rules(snapshot, *self._settings)
            choices = {}
        choices[USUAL] = _choice(snapshot, resource, rules, choices.get(USUAL))
        bad = {gpu for gpu, verdict in health.items() if verdict.is_degraded}
        self._current = _Current(
            snapshot=snapshot,
            resource=resource,
            degraded=frozenset(name for name, gpu in resource.gpus.items() if gpu in bad),
            rules=rules,
            choices=choices,
        )

    def prefer(
        self,
        available: Sequence[str],
        required: Sequence[str],
        size: int,
        variant: Variant = USUAL,
        *,
        beside: Sequence[str] = (),
    ) -> tuple[str, ...]:
        """Return the ids for the kubelet; always exactly as many as it needs.

        *beside* are devices of the pod's other containers: whole GPUs are chosen that make the best
        set together with them.
        """
        current = self._current
        if current is None:
            return preferred(None, available, required, size)
        own = [name for name in beside if name in current.gpus and name not in available]
        own = own if current.resource.is_whole else []
        chosen = preferred(
            current.choice(variant).allocator,
            (*available, *own),
            (*required, *own),
            size + len(own),
            current.degraded,
        )
        answer = tuple(name for name in chosen if name not in own)
        self._answers[frozenset(answer)] = _Reply(variant=variant, beside=tuple(own))
        self._answers.move_to_end(frozenset(answer))
        if len(self._answers) > ANSWERS:
            self._answers.popitem(last=False)
        return answer

    def example(self, size: int) -> Allocation | None:
        """Return the best *size* usable devices, all if there are fewer; ``None`` for none."""
        current = self._current
        if current is None:
            return None
        available = [name for name in current.gpus if current.allocator.knows(name)]
        if not available:
            return None
        size = min(size, len(available))
        return current.allocator.allocate(available=available, size=size, degraded=current.degraded)

    def explain(self, ids: Sequence[str], asked: Asked | None) -> Mapping[str, object]:
        """Return the keys of the log line for *ids*; what is unknown is ``None``.

        *asked* is the request that was answered with *ids*; ``None`` where the kubelet chose. Then,
        or with an unknown device, the alternatives are unknown, and the line only has the set's
        score.
        """
        current = self._current
        if current is None:
            return {}
        reply = _Reply() if asked is None else self._answers.get(frozenset(ids), _Reply())
        choice = current.choice(reply.variant)
        allocator = choice.allocator
        if asked is not None:
            available = [name for name in asked.available if allocator.knows(name)]
            required = [name for name in asked.required if name in available]
            try:
                allocation = allocator.allocate(
                    available=available,
                    required=required,
                    size=asked.size,
                    degraded=current.degraded,
                )
                if set(allocation.chosen) != set(ids):  # the snapshot changed since
                    allocation = allocator.describe(ids, available, current.degraded)
                found = _account(current, choice.explanation, allocation, available)
                found["policy"] = (reply.variant.policy or current.rules.policy).value
                return found | _together(current, reply.beside, found["said"])
            except InputError:
                pass  # a device that the snapshot does not know, or knows to be lost
        try:
            described = allocator.describe(ids, degraded=current.degraded)
            return _account(current, choice.explanation, described, None)
        except InputError as error:
            return {"said": f"not explained: {error.cause}"}


def placement_rules(
    snapshot: Snapshot, policy: Policy, model: Model, table: BandwidthTable | None
) -> Rules:
    """Return the rules; a table that does not fit this node must not keep it from serving."""
    log = structlog.get_logger()
    if table is None:
        return Rules(policy=policy, model=model)
    try:
        measured = table.on(snapshot)
    except AgentError as error:
        model = Model.RING if model is Model.TABLE else model
        log.warning("bandwidth table not used", problem=str(error), model=model.value)
        return Rules(policy=policy, model=model)
    log.info("bandwidth table used", covers=coverage(measured, len(snapshot.gpus)))
    return Rules(policy=policy, model=model, measured=measured)


def _choice(
    snapshot: Snapshot, resource: Resource, rules: Rules, before: _Choice | None = None
) -> _Choice:
    """Return how the devices of *resource* are chosen by *rules*, with the allocator of *before*.

    The allocator of the same facts is kept, with all that it has computed.
    """
    if resource.is_whole:
        allocator = None if before is None else before.allocator
        whole = allocator if isinstance(allocator, Allocator) else Allocator(snapshot, rules)
        explanation = Explanation(snapshot, whole.facts, rules, whole.value_of_all)
        return _Choice(allocator=whole, explanation=explanation)
    if before is not None:
        return before
    # Replicas slow each other down; MIG devices do not, and packed they leave GPUs whole.
    shared = SharedAllocator(snapshot, resource.gpus, rules, spread=resource.is_shared)
    return _Choice(allocator=shared, explanation=shared.explanation)


def _together(current: _Current, beside: Sequence[str], said: object) -> dict[str, object]:
    """Return the sentence of a set that was chosen for what it makes with GPUs *beside* it."""
    if not beside:
        return {}
    others = names(gpu.index for gpu in current.snapshot.gpus if gpu.id in beside)
    return {"said": f"{said}; chosen together with {others}, which the pod has already"}


def _account(
    current: _Current,
    explanation: Explanation | SharedExplanation,
    allocation: Allocation,
    available: Sequence[str] | None,
) -> dict[str, object]:
    """Return the keys for *allocation*; *available* is ``None`` if unknown."""
    if isinstance(explanation, SharedExplanation):
        return shared_account(allocation, explanation, is_pool_known=available is not None)
    if available is None:
        return account(allocation, explanation, None)
    order = [gpu.id for gpu in current.snapshot.gpus]
    free = set(available) - set(allocation.chosen)
    return account(allocation, explanation, sum(1 << order.index(name) for name in free))
