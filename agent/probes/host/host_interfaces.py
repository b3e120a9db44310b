"""The network interfaces of the host, as its own sysfs lists them."""

from agent.probes.sysfs.files import Files

_NET = "class/net"

_CONTROLS = frozenset({"bonding_masters"})
"""Files among the interfaces' links (kernel Documentation/networking/bonding.rst)."""


def interfaces(sysfs: Files) -> tuple[str, ...] | None:
    """Return their names, sorted; ``None`` where they cannot be listed.

    A sysfs shows the network of whoever mounted it. A container's own shows the container's, whose
    interfaces belong to no device: so that is not taken for the host's.
    """
    names = [name for name in sysfs.names(_NET) or () if name not in _CONTROLS]
    is_of_the_host = any(sysfs.names(f"{_NET}/{name}/device") is not None for name in names)
    return tuple(sorted(names)) if is_of_the_host else None
