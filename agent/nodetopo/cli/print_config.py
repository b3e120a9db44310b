"""Prints every setting with its origin, for ``nodetopo run --print-config``."""

from argparse import Namespace

from nodetopo.cli import output
from nodetopo.cli.output import clean, say, warn
from nodetopo.deviceplugin.hand_over import choose, read_setup
from nodetopo.kernel.settings.declare import key
from nodetopo.kernel.settings.explained import effect, nvidia_shown
from nodetopo.kernel.settings.nvidia.names import NAMES, Name
from nodetopo.kernel.settings.reload import Reloader
from nodetopo.kernel.settings.resolve import Resolved
from nodetopo.kernel.settings.values import shown


def print_config(args: Namespace, reloader: Reloader) -> None:
    """Print the settings that a daemon would have now: ours, then NVIDIA's."""
    resolved, config = reloader.current, reloader.config
    for text in resolved.warnings:
        warn(args, text)
    if config is not None:
        for problem in filter(None, (config.problem, reloader.label_problem)):
            warn(args, f"named config: {problem}")
        say(f"named config: {config.name or 'none'}, by {config.why}\n")
    rows = [("SETTING", "VALUE", "ORIGIN", "NVIDIA'S NAME")]
    for field, origin in resolved.origins.items():
        value = shown(getattr(resolved.settings, field))
        names = ", ".join(name.name for name in NAMES if field in name.ours) or "-"
        rows.append((key(field), value, origin, names))
    theirs = [("NVIDIA'S NAME", "VALUE", "ORIGIN", "HERE")]
    theirs += [(name.name, *_nvidia_value(resolved, name), effect(name)) for name in NAMES]
    say(f"{output.table(rows)}\n{output.table(theirs)}")
    settings = resolved.settings
    if "auto" in settings.device_list_strategy:
        chosen = choose(
            read_setup(settings.host_root, settings.procfs_root),
            kind=settings.cdi_kind,
            devices=(),
            writes_spec=settings.cdi_spec == "write",
        )
        say(f"\nhand-over here: {chosen.strategy}, as {clean(chosen.problem or chosen.reason)}")


def _nvidia_value(resolved: Resolved, name: Name) -> tuple[str, str]:
    """Return the value of *name* and its origin; some flags are both ours and NVIDIA's."""
    if (given := resolved.nvidia.get(name.name)) is not None:
        return nvidia_shown(given.value), given.origin
    for field, origin in resolved.origins.items():
        if key(field) in name.flags and origin == f"flag --{key(field)}":
            return nvidia_shown(getattr(resolved.settings, field)), origin
    return "-", "not set"
