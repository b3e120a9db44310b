"""Vital Product Data, and the functions of the NVLink fabric that it gives away."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetopo.probes.sysfs.pci_config import is_nvlink_management, parse_vpd
from tests.probes.sysfs.pci_bytes import ADAPTER, MANAGEMENT, vpd


def test_the_read_only_keywords_are_given_and_the_checksum_is_not() -> None:
    assert parse_vpd(vpd(ADAPTER)) == ADAPTER


def test_small_resources_are_stepped_over() -> None:
    assert parse_vpd(b"\x09\x00" + vpd({"SN": "1"})) == {"SN": "1"}


def test_text_loses_its_padding_and_keeps_what_is_no_text_visible() -> None:
    assert parse_vpd(b"\x90\x08\x00PN\x05 a\xff\x00 ") == {"PN": "a�"}


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (3, None),
        (20, None),
        (23 + 7, {}),
        (23 + 8, {"PN": "P4010"}),
        (23 + 8 + 14, {"PN": "P4010"}),
        (23 + 8 + 15, {"PN": "P4010", "SN": "MT2401X00001"}),
    ],
)
def test_a_part_that_is_cut_short_gives_what_is_whole(
    kept: int, expected: dict[str, str] | None
) -> None:
    whole = vpd({"PN": "P4010", "SN": "MT2401X00001"})
    assert parse_vpd(whole[:kept]) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (vpd(MANAGEMENT), True),
        (vpd(MANAGEMENT, end=b""), True),
        (vpd({"VA": "MLX:MODL=C7010Z:SMDL=SW_MNG"}), True),
        (vpd(ADAPTER), False),  # its serial number spells the field
        (vpd({"VA": "MLX:SMDL=SW_MNG_OTHER"}), False),
        (vpd({"VA": "MLX:OTHER_SMDL=SW_MNG"}), False),
        (vpd({"VA": "SW_MNG"}), False),
        (b"", None),
        (b"\xff" * 64, None),
        (b"\x82\x0b\x00SMDL=SW_MNG\x78", None),
    ],
)
def test_only_a_whole_field_of_a_vendor_keyword_makes_a_function_one_of_the_fabric(
    data: bytes, expected: bool | None
) -> None:
    assert is_nvlink_management(data) is expected


@given(st.binary(max_size=300), st.integers(0, 70))
def test_no_bytes_break_it(noise: bytes, cut: int) -> None:
    for data in (noise, b"\x90" + noise, vpd(MANAGEMENT)[:cut] + noise):
        is_nvlink_management(data)
