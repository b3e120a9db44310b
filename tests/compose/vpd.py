"""Vital Product Data of adapters, as `vpd` in sysfs gives them to root.

Format: PCI Local Bus Specification 3.0, appendix I. Keywords: public `lspci -vv` listings of
ConnectX adapters.
"""

from collections.abc import Mapping

from nodetopo.model.hca import Hca


def of_hca(hca: Hca, *, is_management: bool) -> bytes:
    """Return what an adapter says of itself; V3 is the card, shared by all its functions.

    A function of the NVLink fabric says ``SMDL=SW_MNG`` among the vendor's fields.
    """
    model = "SMDL=SW_MNG" if is_management else f"MODL={hca.board_id}"
    return _vpd(
        hca.hca_type or "adapter",
        {"PN": hca.board_id or "", "V3": card_of(hca), "VA": f"MLX:MN=MLNX:UUID=V3:{model}"},
    )


def of_data_direct(card: str) -> bytes:
    """Return what a Data Direct function of *card* says."""
    return _vpd("Data Direct", {"V3": card})


def card_of(hca: Hca) -> str:
    """Return an invented name of the card: by the GUID that all its functions share."""
    return f"{hca.sys_image_guid}".replace(":", "") + "00000000"


def _vpd(name: str, fields: Mapping[str, str]) -> bytes:
    data = b"".join(
        key.encode() + bytes([len(text)]) + text.encode() for key, text in fields.items()
    )
    title = name.encode()
    return (
        b"\x82"
        + len(title).to_bytes(2, "little")
        + title
        + b"\x90"
        + len(data).to_bytes(2, "little")
        + data
        + b"\x78"
    )
