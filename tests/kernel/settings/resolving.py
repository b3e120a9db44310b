"""Settings resolved from what a test gives, and from nothing outside."""

from collections.abc import Mapping

from nodetopo.kernel.settings.origin import ConfigFile
from nodetopo.kernel.settings.resolve import Resolved

STRATEGY = "device-list-strategy is not set: it is chosen by what the node is set up for"
"""How the warning begins that every file of NVIDIA's without a strategy gives."""


def resolve(
    yaml: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    nvidia_flags: Mapping[str, str] | None = None,
) -> Resolved:
    """Resolve; *yaml* is the file ``n.yaml``."""
    return Resolved.of(
        flags=flags or {},
        environment=environment or {},
        file=None if yaml is None else ConfigFile(name="n.yaml", text=yaml),
        nvidia_flags=nvidia_flags,
    )


def said(text: str) -> str:
    """Return the warnings about a file, but for that of the strategy."""
    warnings = resolve(text).warnings
    return "\n".join(line for line in warnings if not line.startswith(STRATEGY))
