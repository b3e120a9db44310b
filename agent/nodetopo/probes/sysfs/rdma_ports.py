"""The ports of one RDMA device: state, rate, addresses, error counters.

Files: kernel Documentation/ABI/stable/sysfs-class-infiniband; their contents:
drivers/infiniband/core/sysfs.c.
"""

import re
from collections.abc import Mapping
from errno import EINVAL, EOPNOTSUPP

from nodetopo.model.hca import Gid, HcaPort, LinkLayer
from nodetopo.probes.sysfs.files import Files, matched, plain_text
from nodetopo.probes.sysfs.tree import Root

LINK_COUNTERS = (
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "port_rcv_constraint_errors",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_discards",
    "symbol_error",
)
"""The InfiniBand port counters in ``counters`` that count faults."""

HARDWARE_COUNTERS = (
    "duplicate_request",
    "implied_nak_seq_err",
    "impaired_remote_conn_events",
    "local_ack_timeout_err",
    "max_retry_exceeded",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "req_cqe_error",
    "req_remote_access_errors",
    "req_remote_invalid_request",
    "req_rnr_retries_exceeded",
    "req_transport_retries_exceeded",
    "resp_cqe_error",
    "resp_local_length_error",
    "resp_remote_access_errors",
    "retrans_timeout_events",
    "rnr_nak_retry_err",
    "rnr_naks_rcvd",
    "rx_drops",
    "rx_icrc_encapsulated",
    "seq_err_naks_rcvd",
    "to_retransmits",
    "unrecoverable_err",
    "unresponsive_remote_events",
)
"""The counters in ``hw_counters`` that count faults, by the names of the drivers mlx5, bnxt_re and
efa (kernel drivers/infiniband/hw/{mlx5/counters.c,bnxt_re/hw_counters.c,efa/efa_verbs.c})."""

_REFUSED = (EINVAL, EOPNOTSUPP)
"""Errors of drivers for facts that a device, or this function of it, lacks: EINVAL for counters of
restricted functions and for unset GIDs (kernel drivers/infiniband/core/sysfs.c), EOPNOTSUPP for
attributes of network interfaces (net/core/net-sysfs.c).
"""

_INTERFACE = matched(r"(?!\.{1,2}$)[^\s/\x00-\x1f\x7f]{1,15}", "not the name of an interface")
"""Length: IFNAMSIZ less the closing zero (kernel include/uapi/linux/if.h)."""

_UNSET_GIDS = (":".join(["0000"] * 8), ":".join(["fe80"] + ["0000"] * 7))
"""No address, or the link-local prefix without an interface identifier."""

_GID_TYPE = matched("IB/RoCE v1|RoCE v2", "not a GID type that we know")
"""All that the kernel prints (drivers/infiniband/core/cache.c, gid_type_str)."""

_NAMELESS = ("UNKNOWN", "<unknown>")
"""The kernel's text for a number without a name."""

_NEITHER_LAYER = "Unknown"
"""The kernel's text for a device of neither layer, such as AWS's EFA."""

_INDEX, _COUNT = "[0-9]{1,5}", "[0-9]{1,20}"

_GID = matched(r"[0-9a-f]{4}(?::[0-9a-f]{4}){7}", "not a GID")
_STATE = matched(r"-?[0-9]+: *(\S.*)")
_RATE = matched(r"([0-9]{1,6}(?:\.[0-9])?) Gb/sec .*")
_LID = matched(r"0x[0-9a-f]{1,8}", "not a LID")


class RdmaFiles(Files):
    """The files of RDMA devices, some of which drivers refuse to read."""

    def __init__(self, root: Root) -> None:
        super().__init__("rdma", root)

    def word(self, path: str) -> str | None:
        """Return the text of a file; ``None`` for an empty one too."""
        return self.text(path) or None

    def offered(self, path: str) -> str | None:
        """Return the text of a file; ``None`` and no issue where the driver refuses it."""
        try:
            return plain_text(self._tree.content(path))
        except OSError as error:
            if error.errno not in _REFUSED:
                self._failed(path, error)
            return None

    def interface(self, path: str) -> str | None:
        """Return the name of a network interface; ``None`` where the driver gives none."""
        name = self.offered(path)
        return self.read(path, _INTERFACE, name) if name else None

    def numbers(self, path: str) -> list[int]:
        """Return the names in a directory that are numbers, ascending."""
        return sorted(int(name) for name in self.names(path) or () if re.fullmatch(_INDEX, name))


def read_ports(files: RdmaFiles, device: str, *, counters: bool) -> tuple[HcaPort, ...]:
    """Return the ports of the RDMA device whose directory is *device*, by number."""
    ports = []
    for number in filter(None, files.numbers(f"{device}/ports")):
        place = f"{device}/ports/{number}"
        layer = files.read(f"{place}/link_layer", _layer)
        rate = files.read(f"{place}/rate", _RATE)
        lids = (
            None if layer is LinkLayer.ETHERNET else files.read(f"{place}/{name}", _LID)
            for name in ("lid", "sm_lid")
        )
        lid, sm_lid = (None if text is None else int(text, 16) for text in lids)
        ports.append(
            HcaPort(
                number=number,
                state=files.read(f"{place}/state", _named_state),
                physical_state=files.read(f"{place}/phys_state", _named_state),
                layer=layer,
                rate_gbps=None if rate is None else float(rate),
                lid=lid,
                sm_lid=sm_lid,
                gids=read_gids(files, place),
                counters=_counters(files, place) if counters else None,
            )
        )
    return tuple(ports)


def read_gids(files: RdmaFiles, port: str) -> tuple[Gid, ...]:
    """Return the set entries of a port's GID table, by index: the addresses that it answers to.

    Files: kernel Documentation/ABI/stable/sysfs-class-infiniband, ``gids`` and ``gid_attrs``.

    Args:
        port: the port's directory.
    """
    gids = []
    for index in files.numbers(f"{port}/gids"):
        text = files.offered(place := f"{port}/gids/{index}")
        if text is None or text in _UNSET_GIDS or (gid := files.read(place, _GID, text)) is None:
            continue
        kind = files.offered(place := f"{port}/gid_attrs/types/{index}")
        kind = None if kind is None else files.read(place, _GID_TYPE, kind)
        netdev = files.interface(f"{port}/gid_attrs/ndevs/{index}")
        gids.append(Gid(index=index, gid=gid, type=kind, netdev=netdev))
    return tuple(gids)


def _named_state(text: str) -> str | None:
    state = _STATE(text)
    return None if state in _NAMELESS else state


def _layer(text: str) -> LinkLayer | None:
    if text == _NEITHER_LAYER:
        return None
    if text not in tuple(LinkLayer):
        raise ValueError(f"not a link layer that we know: {text[:40]!r}")
    return LinkLayer(text)


def _counters(files: RdmaFiles, port: str) -> Mapping[str, int]:
    """Return the driver's counts, by name.

    A text instead of a number (``N/A (no PMA)``) means that the device lacks the counter, so it is
    not an issue.
    """
    wanted = {"counters": LINK_COUNTERS, "hw_counters": HARDWARE_COUNTERS}
    texts = {
        name: files.offered(f"{port}/{folder}/{name}")
        for folder, known in wanted.items()
        for name in files.names(f"{port}/{folder}") or ()
        if name in known
    }
    found = {name: text for name, text in texts.items() if text and re.fullmatch(_COUNT, text)}
    return {name: int(text) for name, text in sorted(found.items())}
