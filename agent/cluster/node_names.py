"""Many node names in few words."""

import re
from collections.abc import Iterable, Iterator

_LAST_NUMBER = re.compile(
    r"(?P<head>[^.]*?)(?P<number>[0-9]{1,18})(?P<tail>[^0-9.]*(?:\..*)?)", re.DOTALL
)
"""The last number before the first dot: what follows that is the domain."""


def folded(names: Iterable[str]) -> str:
    """Return *names* with runs of numbers folded, as Slurm does: ``gpu-[01-17,20],login``.

    Names are folded that differ only in the last number of their host part, which has as many
    digits in all of them or no leading zero in any. None is left out.
    """
    groups: dict[tuple[str, str, int], list[str]] = {}
    plain = []
    for name in sorted(set(names)):
        found = _LAST_NUMBER.fullmatch(name)
        if found is None:
            plain.append(name)
            continue
        number = found["number"]
        digits = len(number) if number.startswith("0") and number != "0" else 0
        groups.setdefault((found["head"], found["tail"], digits), []).append(number)
    parts = [
        f"{head}{_numbers(found, digits)}{tail}" for (head, tail, digits), found in _joined(groups)
    ]
    return ",".join(sorted([*parts, *plain]))


def _joined(
    groups: dict[tuple[str, str, int], list[str]],
) -> Iterator[tuple[tuple[str, str, int], list[str]]]:
    """Yield each group; ``10`` goes with ``09``, for both have two digits."""
    for (head, tail, digits), found in groups.items():
        if digits:
            unpadded = groups.get((head, tail, 0), [])
            found += [one for one in unpadded if len(one) == digits]
            unpadded[:] = [one for one in unpadded if len(one) != digits]
    yield from ((group, found) for group, found in groups.items() if found)


def _numbers(found: list[str], digits: int) -> str:
    values = sorted(map(int, found))
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and value == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    texts = [
        f"{first:0{digits}}" if first == last else f"{first:0{digits}}-{last:0{digits}}"
        for first, last in runs
    ]
    return texts[0] if len(values) == 1 else f"[{','.join(texts)}]"
