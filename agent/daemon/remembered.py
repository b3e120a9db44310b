"""What outlives the process, in files: verdicts on GPUs, and which GPUs there were."""

from collections.abc import Callable
from pathlib import Path

from agent.config.settings import Settings
from agent.daemon.gpu_health import HealthWatch
from agent.daemon.known_gpus import KnownGpus
from agent.daemon.state_files import HealthFile
from agent.health.ledger import HealthRules

GPUS_FILE = "gpus.json"
"""Beside the health file: the GPUs that a lost one is listed among."""


def remembered_health(
    settings: Settings, boot_id: str | None, on_change: Callable[[], None]
) -> HealthWatch | None:
    """Return what judges the GPUs; ``None`` where settings ask for no judgement."""
    if not settings.health_checks:
        return None
    path = _health_file(settings)
    return HealthWatch(
        HealthRules(classes=settings.xid_classes, recovery_s=settings.recovery_s),
        None if path is None else HealthFile(path),
        boot_id=boot_id,
        on_change=on_change,
    )


def remembered_gpus(settings: Settings, boot_id: str | None) -> KnownGpus | None:
    """Return what remembers GPUs; ``None`` where nothing may, or the boot is not known."""
    path = _health_file(settings)
    if path is None or boot_id is None:
        return None
    return KnownGpus(path.with_name(GPUS_FILE), boot_id)


def _health_file(settings: Settings) -> Path | None:
    """Return where things outlive the process: those of GPUs that are played never do."""
    is_played = settings.machine is not None or settings.snapshot is not None
    return None if is_played or settings.or_simulate else settings.health_file
