"""The changing facts of a running node: the table of paths that periodic scans reread.

A periodic scan reads the paths of :data:`SYSFS`, :data:`PROCFS` and :data:`HOST`. If one of
:data:`EVENTS` has changed, the whole node is reread; if one of :data:`SUBTREES` has, everything
below its first group. Everything else is reread every :data:`REREAD_S`, on SIGHUP, and when NVML
reports other GPUs, another driver or other MIG devices; :data:`HOURLY` lists what can change
without any of these signs.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from nodetopo.probes.sysfs.tree import Act, Key

REREAD_S = 3600.0
"""Longest time for which a fact without a sign of change can be out of date. An hour, since these
are set by an administrator or by firmware, and a whole scan costs ten periodic ones.
"""

_FUNCTION = r"bus/pci/devices/[^/]+"
_PORT = r"class/infiniband/[^/]+/ports/[0-9]+"

SYSFS: Mapping[str, str] = MappingProxyType(
    {
        r"bus/pci/devices": "functions come and go by hot-plug",
        r"class/infiniband": "HCAs come and go with their driver",
        r"class/infiniband/[^/]+/device/net": "interfaces are moved into pods and come back",
        r"devices/system/node": "NUMA nodes come and go, as a GPU's own memory does on Grace",
        r"devices/system/node/(online|has_memory)": "same",
        r"devices/system/cpu/(online|offline)": "CPUs are switched off and on",
        r".*/current_link_(speed|width)": "a link retrains, and slows down when it idles",
        _PORT + r"/(state|phys_state|rate)": "cables are pulled, switches reboot",
        _PORT + r"/(hw_)?counters(/.*)?": "they count",
        r".*/net/[^/]+/(operstate|mtu)": "as the port's state; MTUs are set by hand",
        r".*/hugepages-[0-9]+kB/(nr|free)_hugepages": "pods take and give back huge pages",
        r"kernel/mm/transparent_hugepage/enabled": "tuning daemons set it",
        r"(module/nvidia_peermem|kernel/mm/memory_peers/[^/]+)/version": "loaded by hand",
    },
)
"""Patterns of paths below `/sys`, each with its reason."""

PROCFS: Mapping[str, str] = MappingProxyType(
    {
        r"\.": "processes start and end; the kubelet is one",
        r"modules": "modules are loaded and unloaded",
        r"devices": "their drivers get major numbers, another one after a reload",
        r"sys/(kernel/numa_balancing|vm/zone_reclaim_mode)": "tuning daemons set them",
        r"driver/nvidia/version": "the driver is replaced",
        r"driver/nvidia/gpus": "GPUs are given to the driver, and to another one",
    },
)
"""Patterns of paths below `/proc`, each with its reason."""

HOST: Mapping[str, str] = MappingProxyType({r".*": "the kubelet's files, edited at any time"})
"""Patterns of paths below the host's root, of which few are read, each with its reason."""

EVENTS: Mapping[str, tuple[Key, ...]] = MappingProxyType(
    {
        "sysfs": (
            (Act.NAMES, "bus/pci/devices"),
            (Act.NAMES, "class/infiniband"),
            (Act.NAMES, "devices/system/node"),
            (Act.CONTENT, "devices/system/node/online"),
            (Act.CONTENT, "devices/system/node/has_memory"),
            (Act.CONTENT, "devices/system/cpu/online"),
        ),
        "procfs": (
            (Act.CONTENT, "driver/nvidia/version"),
            (Act.NAMES, "driver/nvidia/gpus"),
        ),
    },
)
"""Reads after whose change the whole node is read again, by tree."""

SUBTREES: tuple[str, ...] = (r"(class/infiniband/[^/]+/)ports/[0-9]+/(?:state|phys_state)",)
"""After a change of these, all below the first group: a port that comes up has new addresses."""

HOURLY: Mapping[str, str] = MappingProxyType(
    {
        _FUNCTION
        + r"(/(vendor|device|class|subsystem_(vendor|device)|vpd|physfn|dsn))?": "hardware; a GPU"
        " that was exchanged has another UUID in NVML",
        _FUNCTION + r"/max_link_(speed|width)": "hardware",
        _FUNCTION + r"/(numa_node|local_cpu(list|s))": "firmware; the online CPUs are an event",
        _FUNCTION + r"/config": "ACS and device control: set at boot, or by an administrator",
        _FUNCTION + r"/(driver|iommu_group(/type)?)": "changed by an administrator; for a GPU the"
        " list of those that the driver has is an event",
        r"class/infiniband/[^/]+/(?!ports/[0-9]).*": "firmware, and the netdevs made with the HCA",
        _PORT + r"/(gids|gid_attrs|link_layer|lid|sm_lid)(/.*)?": "read again with the port's"
        " state; an address given to an interface that stays up is missed until then",
        r"class/(net|infiniband_verbs|infiniband_mad|dmi)(/.*)?": "made with the HCA; firmware",
        r"devices/system/node/node[0-9]+/(cpulist|meminfo|distance|hugepages)": "firmware, and"
        " the online CPUs, which are an event; MemTotal moves with single blocks of memory",
        r"devices/system/cpu/.*": "hardware and boot, CPUs going off and on being an event; the"
        " frequency governor is set by an administrator",
        r"module(/(nvidia|ib_core)(/.*)?)?": "parameters set when the module is loaded",
        r"[0-9]+/(cmdline|cwd)": "a process keeps its flags; another one has another id",
        r"(cmdline|cpuinfo|sys/kernel/(osrelease|arch))": "boot",
        r"sys/vm/swappiness": "only audits read it",
        r"driver/nvidia/(params|gpus/.*)": "set when the driver is loaded, which is an event",
    },
)
"""Changes that a periodic scan can miss until the next whole one, each with its reason."""


def pattern(table: Mapping[str, str]) -> re.Pattern[str]:
    """Return one pattern that matches any pattern of *table*."""
    return re.compile("|".join(f"(?:{each})" for each in table))
