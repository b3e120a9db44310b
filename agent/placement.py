"""The placement of one resource: the allocator of the newest snapshot, and its reasons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from agent.allocation.account import account
from agent.allocation.bandwidth import with_measured_pairs
from agent.allocation.explain import Explanation
from agent.allocation.facts import facts
from agent.allocation.measured import BandwidthTable, coverage
from agent.allocation.naming import usable
from agent.allocation.policy import Allocation, Allocator, preferred
from agent.allocation.rules import Model, Policy, Rules
from agent.config.bandwidth_file import load
from agent.config.settings import Settings
from agent.errors import AgentError, InputError
from agent.kubelet.allocation_log import Asked
from agent.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class _Current:
    """What answers are made from; replaced as a whole, so that readers need no lock."""

    snapshot: Snapshot
    allocator: Allocator
    explanation: Explanation
    rules: Rules


class Placement:
    """Answer for one resource by the operator's rules; safe to share between threads."""

    def __init__(self, policy: Policy, model: Model, table: BandwidthTable | None = None) -> None:
        self._policy = policy
        self._model = model
        self._table = table
        self._current: _Current | None = None

    @classmethod
    def of(cls, settings: Settings) -> "Placement":
        """Return the placement that *settings* ask for.

        Raises:
            InputError: the bandwidth table cannot be used.
        """
        path, offered = settings.bandwidth_table, settings.resource_name
        if unused := sorted(set(settings.placement_policy.special) - {offered}):
            structlog.get_logger().info("placement policies not used", resources=unused)
        return cls(
            settings.placement_policy.policy(offered),
            Model(settings.bandwidth_model),
            load(path) if path is not None else None,
        )

    def take(self, snapshot: Snapshot) -> None:
        """Place on *snapshot* from now on.

        What is known of sets is kept while the facts that placement depends on are the same:
        to work it out anew takes 0.1 s on a mesh, and seconds on an irregular box of 16.
        """
        before = self._current
        if before is not None and _same_gpus(before.snapshot, snapshot):
            rules = before.rules
            known = with_measured_pairs(facts(snapshot), rules.measured)
            if before.allocator.facts == known:
                self._set(snapshot, before.allocator, rules)
                return
        rules = self._rules(snapshot)
        self._set(snapshot, Allocator(snapshot, rules), rules)

    def prepare(self) -> None:
        """Work out now what requests would have to wait for; nothing the second time."""
        if self._current is not None:
            self._current.allocator.prepare()

    def prefer(
        self, available: Sequence[str], required: Sequence[str], size: int
    ) -> tuple[str, ...]:
        """Return the ids for the kubelet; always exactly as many as it needs."""
        current = self._current
        allocator = None if current is None else current.allocator
        return preferred(allocator, available, required, size)

    def example(self, size: int) -> Allocation | None:
        """Return the best *size* usable GPUs, or all where there are fewer; ``None`` for none."""
        current = self._current
        available = usable(current.snapshot) if current is not None else ()
        if current is None or not available:
            return None
        size = min(size, len(available))
        return current.allocator.allocate(available=available, size=size)

    def explain(self, ids: Sequence[str], asked: Asked | None) -> Mapping[str, object]:
        """Return the keys of the log line for *ids*; what is unknown is ``None``.

        Where the kubelet chose itself, or a GPU is not known, what else was available is not
        known either, and the line says what the set is worth.
        """
        current = self._current
        if current is None:
            return {}
        if asked is not None:
            try:
                return _answered(current, ids, asked)
            except InputError:
                pass  # a GPU that the snapshot does not know, or knows to be lost
        try:
            found = current.allocator.describe(ids)
        except InputError as error:
            return {"said": f"not explained: {error.cause}"}
        return account(found, current.explanation, None)

    def _set(self, snapshot: Snapshot, allocator: Allocator, rules: Rules) -> None:
        explanation = Explanation(snapshot, allocator.facts, rules)
        self._current = _Current(
            snapshot=snapshot, allocator=allocator, explanation=explanation, rules=rules
        )

    def _rules(self, snapshot: Snapshot) -> Rules:
        """Return the rules; a table that does not fit this node must not keep it from serving."""
        log = structlog.get_logger()
        if self._table is None:
            return Rules(policy=self._policy, model=self._model)
        try:
            measured = self._table.on(snapshot)
        except AgentError as error:
            model = Model.RING if self._model is Model.TABLE else self._model
            log.warning("bandwidth table not used", problem=str(error), model=model.value)
            return Rules(policy=self._policy, model=model)
        log.info("bandwidth table used", covers=coverage(measured, len(snapshot.gpus)))
        return Rules(policy=self._policy, model=self._model, measured=measured)


def _answered(current: _Current, ids: Sequence[str], asked: Asked) -> dict[str, object]:
    """Return the keys for an answer of ours, with what else there was.

    Raises:
        InputError: the allocator does not know all of the GPUs.
    """
    allocator = current.allocator
    available = [name for name in asked.available if allocator.knows(name)]
    required = [name for name in asked.required if name in available]
    found = allocator.allocate(available=available, required=required, size=asked.size)
    if set(found.chosen) != set(ids):  # the snapshot has changed since
        found = allocator.describe(ids, available)
    order = [gpu.id for gpu in current.snapshot.gpus]
    left = sum(1 << order.index(name) for name in set(available) - set(ids))
    return account(found, current.explanation, left)


def _same_gpus(a: Snapshot, b: Snapshot) -> bool:
    return [gpu.id for gpu in a.gpus] == [gpu.id for gpu in b.gpus] and usable(a) == usable(b)
