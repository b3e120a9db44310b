"""Which processes of the host have device nodes of the NVIDIA driver open."""

import re
from itertools import islice

from msgspec.structs import replace

from nodetopo.model.host import DriverHolder, DriverHolders, HostSettings
from nodetopo.model.operator_labels import driver_claim
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.host.processes import host_processes
from nodetopo.probes.sysfs.files import Files
from nodetopo.probes.sysfs.tree import Root, Tree

_NODE = re.compile(r"nvidia([0-9]{1,4}|ctl|-uvm(-tools)?|-modeset|-cap[0-9]{1,6}|-nvswitch.{1,8})")
"""Names of the driver's nodes in ``/dev`` and ``/dev/nvidia-caps``."""

_CONTAINER = re.compile(r"([0-9a-f]{12})[0-9a-f]{52}")
"""The id of a container in its cgroup path, as written by container runtimes."""

_MOST_DESCRIPTORS = 4096
"""Most descriptors examined per process: four times an application's default limit."""


def with_driver_holders(snapshot: Snapshot, procfs: Root) -> Snapshot:
    """Return *snapshot* with the driver's users, if a label of the Node requests it.

    Examining the descriptors of all processes costs milliseconds per thousand, so nothing is read
    without such a label.
    """
    node = snapshot.node_status
    if node is None or driver_claim(node.labels or {}) is None:
        return snapshot
    host = snapshot.host or HostSettings()
    return replace(snapshot, host=replace(host, driver_holders=driver_holders(procfs)))


def driver_holders(procfs: Root) -> DriverHolders | None:
    """Return the processes with such a node open; None where *procfs* shows a container's alone.

    Descriptors of another process are readable with its user and its capabilities (ptrace(2),
    PTRACE_MODE_READ_FSCREDS); processes where that fails are counted.
    """
    tree = Tree.of(procfs)
    processes = host_processes(tree)
    if processes is None:
        return None
    files = Files("host", tree)
    holders, unread = [], 0
    for process in processes:
        place = f"{process.pid}/fd"
        names = files.names(place)
        if names is None:
            unread += files.names(str(process.pid)) is not None  # or it has ended
            continue
        targets = (
            files.link_name(f"{place}/{name}") or "" for name in islice(names, _MOST_DESCRIPTORS)
        )
        if any(map(_NODE.fullmatch, targets)):
            group = _CONTAINER.search(files.text(f"{process.pid}/cgroup") or "")
            container = None if group is None else group[1]
            holders.append(DriverHolder(pid=process.pid, name=process.name, container=container))
    return DriverHolders(processes=tuple(holders), unread=unread)
