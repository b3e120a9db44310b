"""The conditions that keep GPUs of our DRA driver from being allocated, and their start."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from nodetopo.components.dra.devices import Conditions
from nodetopo.components.dra.pool import Pool
from nodetopo.components.dra.publisher import own
from nodetopo.kubeapi.slices import Slices
from nodetopo.model.gpu_health import GpuHealth, HealthView


class ConditionsKeeper:
    """Remembers when each condition of each GPU began; for one thread.

    Taints carry this time, and pods are evicted when their toleration has passed since then. So a
    new process reads it from the slices.
    """

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], str] = {}
        self._start = _now()

    def conditions(
        self,
        pool: Pool,
        slices: Slices | None,
        health: HealthView,
        *,
        held: Collection[str],
        foreign: Mapping[str, str],
        evicts: bool,
    ) -> Conditions:
        """Return the conditions of now.

        Args:
            slices: as the API server has them; ``None`` while they are unknown, as they can have
                older times.
            held: ids of GPUs that pods have without our driver.
            foreign: GPU id → driver that has it too.
        """
        verdicts: dict[str, GpuHealth] = dict(health)
        for gpu in pool.snapshot.gpus:
            if gpu.is_lost and verdicts.get(gpu.id, GpuHealth()).is_healthy:
                verdicts[gpu.id] = GpuHealth(is_healthy=False, reason="GpuLost", said="it is lost")
        found = Conditions(health=verdicts, held=frozenset(held), foreign=foreign, evicts=evicts)
        is_new = bool(found.tainted - self._since.keys())
        before = _published_since(pool, slices or {}) if is_new else {}
        now = self._start if slices is None else _now()
        since = {each: self._since.get(each) or before.get(each) or now for each in found.tainted}
        if slices is not None:
            self._since = since
        return replace(found, since=since)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _published_since(pool: Pool, slices: Slices) -> Mapping[tuple[str, str], str]:
    """Return the start of GPUs' conditions in the slices, from the devices of single GPUs."""
    found: dict[tuple[str, str], str] = {}
    for body in own(slices).values():
        for device in body.get("spec", {}).get("devices") or ():
            backing = pool.backing(str(device.get("name"))) if device.get("taints") else None
            if backing is None or len(backing.gpus) != 1:
                continue
            for taint in device["taints"]:
                if since := taint.get("timeAdded"):
                    each = backing.gpus[0], str(taint.get("key"))
                    found[each] = min(found.get(each, since), str(since))
    return found
