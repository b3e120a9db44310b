"""The settings at the start, kept alongside the state files."""

import json
from pathlib import Path

from nodetopo.deviceplugin.host_files import HostFile
from nodetopo.deviceplugin.state_file import read_boot_id
from nodetopo.kernel.settings.declare import key
from nodetopo.kernel.settings.own import KernelSettings
from nodetopo.kernel.settings.resolve import Resolved
from nodetopo.kernel.settings.values import shown

SETTINGS_FILE = "settings.json"
"""Beside the health file: the settings at the start and their origins, for ``nodetopo support``."""


def keep_settings(path: Path, resolved: Resolved) -> None:
    """Write *resolved* to *path*, name → value and origin; a failure is of no consequence.

    A command in the same container sees the daemon's variables, but not its flags.
    """
    text = json.dumps(settings_to_plain(resolved), indent=2)
    HostFile(path, mode=0o600).write(f"{text}\n")


def settings_to_plain(resolved: Resolved) -> dict[str, dict[str, str]]:
    """Return name → value, as text, and origin."""
    return {
        key(name): {"value": shown(getattr(resolved.settings, name)), "origin": origin}
        for name, origin in resolved.origins.items()
    }


def boot_state(settings: KernelSettings, name: str) -> tuple[Path, str] | None:
    """Return the file *name* of state, and the boot that it is about; ``None`` if none is kept.

    Boots that the kernel does not name count as one: by default a boot empties the directory.
    """
    path = health_file(settings)
    if path is None or settings.once:
        return None
    return path.with_name(name), read_boot_id(settings.procfs_root) or "unknown"


def health_file(settings: KernelSettings) -> Path | None:
    """Return the file that outlives the process; ``None`` for GPUs that are simulated."""
    is_simulated = settings.machine is not None or settings.snapshot is not None
    return None if is_simulated or settings.or_simulate else settings.health_file
