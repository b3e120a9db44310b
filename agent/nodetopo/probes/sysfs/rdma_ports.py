"""The ports of one RDMA device: state, rate, addresses, error counters.

Files: kernel Documentation/ABI/stable/sysfs-class-infiniband; their contents:
drivers/infiniband/core/sysfs.c.
"""

import re
from collections.abc import Mapping
from errno import EINVAL, EOPNOTSUPP

from nodetopo.model.hca import Gid, HcaPort, LinkLayer
from nodetopo.probes.sysfs.files import Files, plain_text
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

_INTERFACE = re.compile(r"[^\s/\x00-\x1f\x7f]{1,15}")
"""Length: IFNAMSIZ less the closing zero (kernel include/uapi/linux/if.h)."""

_UNSET_GIDS = (":".join(["0000"] * 8), ":".join(["fe80"] + ["0000"] * 7))
"""No address, or the link-local prefix without an interface identifier."""

_GID_TYPES = ("IB/RoCE v1", "RoCE v2")
"""All that the kernel prints (drivers/infiniband/core/cache.c, gid_type_str)."""

_NAMELESS = ("UNKNOWN", "<unknown>")
"""The kernel's text for a number without a name."""

_NEITHER_LAYER = "Unknown"
"""The kernel's text for a device of neither layer, such as AWS's EFA."""

_INDEX = re.compile(r"[0-9]{1,5}")
_GID = re.compile(r"[0-9a-f]{4}(:[0-9a-f]{4}){7}")
_NUMBER = re.compile(r"[1-9][0-9]{0,3}")
_STATE = re.compile(r"-?[0-9]+: *(\S.*)")
_RATE = re.compile(r"([0-9]{1,6}(?:\.[0-9])?) Gb/sec .*")
_LID = re.compile(r"0x[0-9a-f]{1,8}")
_COUNT = re.compile(r"[0-9]{1,20}")


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
        if not name:
            return None
        if _INTERFACE.fullmatch(name) is None or name in (".", ".."):
            self.report(path, f"not the name of an interface: {name[:40]!r}")
            return None
        return name


def read_ports(files: RdmaFiles, device: str, *, counters: bool) -> tuple[HcaPort, ...]:
    """Return the ports of the RDMA device whose directory is *device*, by number."""
    names = files.names(f"{device}/ports") or ()
    ports = []
    for number in sorted(int(name) for name in names if _NUMBER.fullmatch(name)):
        place = f"{device}/ports/{number}"
        layer = _layer(files, f"{place}/link_layer")
        has_lid = layer is not LinkLayer.ETHERNET
        state = _match(files, f"{place}/state", _STATE)
        physical_state = _match(files, f"{place}/phys_state", _STATE)
        rate = _match(files, f"{place}/rate", _RATE)
        ports.append(
            HcaPort(
                number=number,
                state=None if state in _NAMELESS else state,
                physical_state=None if physical_state in _NAMELESS else physical_state,
                layer=layer,
                rate_gbps=None if rate is None else float(rate),
                lid=_lid(files, f"{place}/lid") if has_lid else None,
                sm_lid=_lid(files, f"{place}/sm_lid") if has_lid else None,
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
    names = files.names(f"{port}/gids") or ()
    gids = []
    for index in sorted(int(name) for name in names if _INDEX.fullmatch(name)):
        place = f"{port}/gids/{index}"
        text = files.offered(place)
        if text is None or text in _UNSET_GIDS:
            continue
        if _GID.fullmatch(text) is None:
            files.report(place, f"not a GID: {text[:40]!r}")
            continue
        kind = files.offered(f"{port}/gid_attrs/types/{index}")
        if kind is not None and kind not in _GID_TYPES:
            path = f"{port}/gid_attrs/types/{index}"
            files.report(path, f"not a GID type that we know: {kind[:40]!r}")
            kind = None
        netdev = files.interface(f"{port}/gid_attrs/ndevs/{index}")
        gids.append(Gid(index=index, gid=text, type=kind, netdev=netdev))
    return tuple(gids)


def _match(files: RdmaFiles, path: str, pattern: re.Pattern[str]) -> str | None:
    text = files.text(path)
    if text is None:
        return None
    match = pattern.fullmatch(text)
    if match is None:
        files.report(path, f"not understood: {text[:40]!r}")
        return None
    return match[1]


def _layer(files: RdmaFiles, path: str) -> LinkLayer | None:
    text = files.text(path)
    if text is None or text == _NEITHER_LAYER:
        return None
    if text not in tuple(LinkLayer):
        files.report(path, f"not a link layer that we know: {text[:40]!r}")
        return None
    return LinkLayer(text)


def _lid(files: RdmaFiles, path: str) -> int | None:
    text = files.text(path)
    if text is None:
        return None
    if _LID.fullmatch(text) is None:
        files.report(path, f"not a LID: {text[:40]!r}")
        return None
    return int(text, 16)


def _counters(files: RdmaFiles, port: str) -> Mapping[str, int]:
    """Return the driver's counts, by name.

    A text instead of a number (``N/A (no PMA)``) means that the device lacks the counter, so it is
    not an issue.
    """
    counts: dict[str, int] = {}
    for folder, wanted in (("counters", LINK_COUNTERS), ("hw_counters", HARDWARE_COUNTERS)):
        for name in files.names(f"{port}/{folder}") or ():
            if name not in wanted:
                continue
            text = files.offered(f"{port}/{folder}/{name}")
            if text is not None and _COUNT.fullmatch(text):
                counts[name] = int(text)
    return dict(sorted(counts.items()))
