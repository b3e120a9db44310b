import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetopo.model.pci import PciAddress


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0000:1b:00.0", "0000:1b:00.0"),
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("00010000:af:1f.7\n", "10000:af:1f.7"),
    ],
)
def test_a_pci_address_is_read_as_sysfs_and_nvml_spell_it(text: str, canonical: str) -> None:
    assert str(PciAddress.parse(text)) == canonical


@given(
    st.builds(
        PciAddress,
        domain=st.integers(0, 0xFFFFFFFF),
        bus=st.integers(0, 255),
        device=st.integers(0, 31),
        function=st.integers(0, 7),
    ),
)
def test_a_pci_address_round_trips(address: PciAddress) -> None:
    assert PciAddress.parse(str(address)) == address


@pytest.mark.parametrize("text", ["", "1b:00.0", "0000:1b:00.8", "0000:1g:00.0", "0000:1b:00"])
def test_text_that_is_not_a_pci_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a PCI address"):
        PciAddress.parse(text)


def test_pci_addresses_sort_by_number() -> None:
    texts = ["0000:10:00.0", "0000:09:00.0", "0001:00:00.0", "0000:09:00.1"]
    assert [str(address) for address in sorted(map(PciAddress.parse, texts))] == [
        "0000:09:00.0",
        "0000:09:00.1",
        "0000:10:00.0",
        "0001:00:00.0",
    ]
