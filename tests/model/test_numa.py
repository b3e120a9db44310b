import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetopo.model.numa import CpuSet


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
def test_text_that_is_not_a_cpu_list_is_refused(text: str) -> None:
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
