"""Numbers in text are of ASCII digits everywhere."""

import re
from pathlib import Path

import pytest

from nodetopo.cli.flags.allocate import add
from nodetopo.cli.parser import Parser
from nodetopo.errors import DecodeError, InputError
from nodetopo.model.digits import is_digits, number, whole_number
from nodetopo.model.numa import CpuSet
from nodetopo.probes.sysfs.files import Files
from nodetopo.tools.importers.topo_m import parse_topo_m

FOREIGN = ["٣", "\uff13", "²", "1_0", " 1", "1 ", "", "0x1", "①"]
"""Arabic-Indic, full width, superscript, underscore, blanks, nothing, hexadecimal, circled."""


@pytest.mark.parametrize("text", FOREIGN)
def test_only_ascii_digits_are_digits(text: str) -> None:
    assert not is_digits(text)
    for read in (whole_number, number):
        with pytest.raises(ValueError, match="not a"):
            read(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("007", 7), ("-1", -1), ("+5", 5), ("18446744073709551615", (1 << 64) - 1)],
)
def test_whole_numbers_are_read(text: str, expected: int) -> None:
    assert whole_number(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("1.5", 1.5), ("-.5", -0.5), ("2e3", 2000.0)])
def test_numbers_are_read(text: str, expected: float) -> None:
    assert number(text) == expected


@pytest.mark.parametrize("text", ["inf", "nan", "1e", "9" * 5000])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a number"):
        number(text)


@pytest.mark.parametrize("text", ["٣", "0-٣", "²", "1_0", "0-1_0", "9" * 5000])
def test_a_list_of_cpus_has_ascii_digits(text: str) -> None:
    with pytest.raises(ValueError, match="not a CPU list"):
        CpuSet.parse(text)


@pytest.mark.parametrize("affinity", ["0-\u0667", "0-\uff17", "²"])
def test_a_pasted_list_has_ascii_digits(affinity: str) -> None:
    with pytest.raises(DecodeError, match="not a list"):
        parse_topo_m(f"\tGPU0\tCPU Affinity\nGPU0\t X \t{affinity}\n")


@pytest.mark.parametrize("content", ["٣", "1_0", "3³"])
def test_a_number_of_the_kernel_has_ascii_digits(tmp_path: Path, content: str) -> None:
    (tmp_path / "numa_node").write_text(f"{content}\n", encoding="utf-8")
    files = Files("pcie", tmp_path)
    assert files.number("numa_node") is None
    (issue,) = files.issues
    assert issue.reason == f"not a number: {content!r}"


@pytest.mark.parametrize("size", ["٣", "1_0", "\uff12"])
def test_a_size_on_the_command_line_has_ascii_digits(size: str) -> None:
    parser = Parser(prog="nodetopo")
    add(parser)
    with pytest.raises(InputError, match="invalid int value"):
        parser.parse_args(["--size", size])


def test_no_other_module_asks_python_what_a_digit_is() -> None:
    asks = re.compile(r"\bisdigit\b|\bisdecimal\b|\bisnumeric\b|\\d")
    root = Path(__file__).parents[2] / "agent" / "nodetopo"
    modules = (path for path in root.rglob("*.py") if path.parent.name != "pb")
    asking = [path for path in modules if asks.search(path.read_text("utf-8"))]
    assert asking == [root / "model" / "digits.py"]
