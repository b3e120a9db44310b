import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.kubernetes import quantity
from agent.model.numa import CpuSet
from agent.model.pci import PciAddress


@given(st.sets(st.integers(0, 500)))
def test_a_cpu_list_round_trips(cpus: set[int]) -> None:
    assert set(CpuSet.parse(str(CpuSet.of(cpus)))) == cpus


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        ("\n", ""),
        ("0-3,8", "0-3,8"),
        ("8,3,2,1,0", "0-3,8"),
        ("4-4", "4"),
        ("0,1", "0-1"),
    ],
)
def test_a_cpu_list_is_written_as_the_kernel_writes_it(text: str, canonical: str) -> None:
    assert str(CpuSet.parse(text)) == canonical


@pytest.mark.parametrize("text", ["x", "3-1", "1-", "-1", "0-99999999999", "1--2", "0x1", "1 2"])
def test_what_is_no_cpu_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a CPU list"):
        CpuSet.parse(text)


def test_cpu_sets_combine_and_compare() -> None:
    low, high = CpuSet.parse("0-5"), CpuSet.parse("4-8")
    assert (str(low & high), str(low | high), low <= high, low & high <= low, len(low)) == (
        "4-5",
        "0-8",
        False,
        True,
        6,
    )


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
def test_what_is_no_pci_address_is_refused(text: str) -> None:
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


@pytest.mark.parametrize(
    ("text", "per_unit", "number"),
    [
        ("4", 1, 4),
        ("1500m", 1000, 1500),
        ("1.5", 1000, 1500),
        (".5", 1000, 500),
        ("2Gi", 1, 2 << 30),
        ("2G", 1, 2_000_000_000),
        ("1e3", 1, 1000),
        ("1E", 1, 10**18),
        ("1E3", 1, 1000),
        ("100n", 1000, 1),
        ("-1", 1, -1),
        ("0.1m", 1000, 1),
    ],
)
def test_a_quantity_is_read_as_kubernetes_reads_it(text: str, per_unit: int, number: int) -> None:
    assert quantity(text, per_unit=per_unit) == number


@pytest.mark.parametrize("text", ["", "x", "1Zi", "1.2.3", ".", "1 Gi", "1e", "0x10", "1KiB"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        quantity(text)
