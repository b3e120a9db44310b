"""Many node names in few words, none of them lost."""

import re
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetopo.tools.cluster.node import folded


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), ""),
        (("a",), "a"),
        (("gpu-1",), "gpu-1"),
        (("gpu-2", "gpu-1"), "gpu-[1-2]"),
        (("gpu-1", "gpu-3", "gpu-4", "login"), "gpu-[1,3-4],login"),
        (("n08", "n09", "n10", "n11"), "n[08-11]"),
        (("n8", "n9", "n10"), "n[8-10]"),
        (("n01", "n1"), "n01,n1"),
        (("ip-10-0-0-1.ec2", "ip-10-0-0-2.ec2"), "ip-10-0-0-[1-2].ec2"),
        (("a1b", "a1c"), "a1b,a1c"),
        (("n0", "n1"), "n[0-1]"),
    ],
)
def test_runs_of_numbers_are_folded(names: tuple[str, ...], text: str) -> None:
    assert folded(names) == text


def unfolded(text: str) -> set[str]:
    """Return the names that *text* stands for."""
    parts = re.findall(r"[^,\[]*\[[^\]]*\][^,]*|[^,]+", text)
    return set(chain.from_iterable(map(_names, parts)))


def _names(part: str) -> list[str]:
    found = re.fullmatch(r"(.*)\[(.*)\](.*)", part)
    if found is None:
        return [part]
    head, runs, tail = found.groups()
    names = []
    for run in runs.split(","):
        first, _, last = run.partition("-")
        numbers = range(int(first), int(last or first) + 1)
        width = len(first) if first.startswith("0") and first != "0" else 0
        names += [f"{head}{number:0{width}}{tail}" for number in numbers]
    return names


@given(
    st.sets(
        st.from_regex(r"[a-c-]{0,2}[0-9]{0,3}[ab.]{0,1}[0-9]{0,1}", fullmatch=True).filter(bool)
    )
)
def test_no_name_is_lost_or_invented(names: set[str]) -> None:
    assert unfolded(folded(names)) == names
