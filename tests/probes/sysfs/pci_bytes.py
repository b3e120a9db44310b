"""Config spaces and Vital Product Data, put together as hardware holds them."""

from collections.abc import Mapping

EXPRESS_AT = 0x60
"""Where the PCI Express capability of :func:`config` is, after one of another kind."""

POWER_MANAGEMENT = 0x01


def config(
    *,
    bridge: bool = False,
    port_type: int | None = 0,
    control: int = 0,
    acs: int | None = None,
    size: int = 4096,
) -> bytes:
    """Return a config space.

    Args:
        port_type: of the PCI Express capability; ``None`` leaves the capability out.
        control: the device control register.
        acs: the ACS control register, behind another extended capability; ``None``: no ACS.
        size: bytes that the reader gets to see.
    """
    space = bytearray(4096)
    space[0:4] = b"\x86\x80\x2a\x35"
    space[0x06] = 0x10
    space[0x0E] = 0x81 if bridge else 0x80
    space[0x34] = 0x40
    space[0x40:0x42] = bytes([POWER_MANAGEMENT, 0 if port_type is None else EXPRESS_AT])
    if port_type is not None:
        space[EXPRESS_AT : EXPRESS_AT + 4] = bytes([0x10, 0, port_type << 4 | 2, 0])
        space[EXPRESS_AT + 8 : EXPRESS_AT + 10] = control.to_bytes(2, "little")
    if acs is not None:
        space[0x100:0x104] = (0x1481_0001).to_bytes(4, "little")
        space[0x148:0x14C] = (0x0001_000D).to_bytes(4, "little")
        space[0x14E:0x150] = acs.to_bytes(2, "little")
    return bytes(space[:size])


def vpd(fields: Mapping[str, str], *, end: bytes = b"\x78") -> bytes:
    """Return Vital Product Data with a name, *fields* that are read-only, and a writable one."""
    name = b"NVIDIA ConnectX-7"
    data = b"".join(
        key.encode() + bytes([len(text)]) + text.encode() for key, text in fields.items()
    )
    data += b"RV\x02\x7a\x00"
    return (
        b"\x82"
        + len(name).to_bytes(2, "little")
        + name
        + b"\x90"
        + len(data).to_bytes(2, "little")
        + data
        + b"\x91\x06\x00V1\x03abc"
        + end
    )


MANAGEMENT = {
    "PN": "P4010",
    "SN": "MT2401X00001",
    "VA": "MLX:MN=MLNX:CSKU=V2:UUID=V3:PCI=V0:SMDL=SW_MNG:MODL=C7010Z",
}
ADAPTER = {
    "PN": "MCX755106AS-HEAT",
    "SN": "SMDL=SW_MNG",
    "VA": "MLX:MN=MLNX:CSKU=V2:UUID=V3:PCI=V0:MODL=CX755106A",
    "V0": "PCIeGen5 x16",
}
