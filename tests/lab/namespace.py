"""A mount namespace in which one simulated machine's files stand at the real places.

cadvisor reads the CPU and NUMA trees at fixed paths, and the kubelet has the device plugins'
directory compiled in, so that two simulated machines need two views of the file system.
"""

import shlex
import subprocess
from functools import cache
from pathlib import Path

SIMULATED = ("sys/devices/system/cpu", "sys/devices/system/node", "proc/cpuinfo")
"""What of the machine the kubelet is shown; the rest is the real one's."""

KUBELET_DIR = Path("/var/lib/kubelet")
"""``DevicePluginPath`` lies in it whatever ``--root-dir`` says (kubelet, v1beta1 constants)."""


@cache
def unshare_flags() -> tuple[str, ...] | None:
    """Return the flags of unshare(1) that give a mount namespace here; ``None`` if none do.

    Root needs no more than the mount namespace; others need a user namespace around it.
    """
    for flags in (("--mount",), ("--user", "--map-root-user", "--mount")):
        attempt = ["unshare", *flags, "mount", "--bind", "/proc/version", "/proc/cpuinfo"]
        try:
            outcome = subprocess.run(attempt, check=False, capture_output=True)
        except FileNotFoundError:
            return None
        if outcome.returncode == 0:
            return flags
    return None


def required_flags() -> tuple[str, ...]:
    """Return :func:`unshare_flags`, which there must be."""
    flags = unshare_flags()
    assert flags is not None, "neither root nor user namespaces here"
    return flags


def is_user_namespace(flags: tuple[str, ...]) -> bool:
    """Tell whether programs under *flags* are root inside only."""
    return "--user" in flags


def entering(flags: tuple[str, ...], host: Path, programs: Path) -> tuple[str, ...]:
    """Return the command prefix that runs what follows it with the machine of *host* in place.

    Unpacked trees lie below *host* at the places they have on a node; so does the directory
    that becomes ``/var/lib/kubelet``. *programs* becomes ``<host>/../bin``, because the
    kubelet may write below ``/var``, and all of that is covered to spare the real machine.
    """
    seen_programs = host.parent / "bin"
    seen_programs.mkdir(exist_ok=True)
    lines = ["set -e", _bind(programs, seen_programs)]
    lines += [_bind(host / path, Path("/") / path) for path in SIMULATED]
    lines += ["mount -t tmpfs lab /var/log", "mount -t tmpfs lab /var/lib"]
    lines += [f"mkdir {KUBELET_DIR}", _bind(host / KUBELET_DIR.relative_to("/"), KUBELET_DIR)]
    lines += ['exec "$@"']
    return ("unshare", *flags, "sh", "-c", "\n".join(lines), "lab")


def _bind(source: Path, place: Path) -> str:
    return f"mount --bind {shlex.quote(str(source))} {shlex.quote(str(place))}"
