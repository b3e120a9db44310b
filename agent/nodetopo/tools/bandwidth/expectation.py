"""An expectation: a figure or a range, in GB/s of 10^9 bytes one way, and where it is from."""

from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.model.nvlink import Closeness
from nodetopo.tools.bandwidth import published
from nodetopo.tools.bandwidth.published import Range


class Gate(NamedTuple):
    """A measurement below *gb_per_s* with messages of *size* bytes and more means a fault."""

    gb_per_s: float
    size: int


class Expected(Struct, frozen=True, kw_only=True):
    """An expectation; without *low* there is none, for the *reason*."""

    # low, high: the range; equal for a figure
    low: float | None = None
    high: float | None = None
    default: float | None = None  # to use if one value is needed; None for the middle
    gate: float | None = None  # a measurement below it means a fault
    # Bytes from which the gate holds; None for every message that shows bandwidth.
    gate_size: int | None = None
    floor: Gate | None = None  # the gate of smaller messages; None if there is none
    # What rings carry, where the range is of NVLS; None if that is known to be on.
    by_rings: Range | None = None
    over: str | None = None  # the links that carry the data: 18 NVLinks
    assumes: tuple[str, ...] = ()  # shares of the payload that are reached, and their conditions
    behind: tuple[str, ...] = ()  # assumptions behind the rate that `assumes` is a share of
    source: str | None = None  # of share and gate
    is_wide: bool = False  # so wide that a value below `default` deserves a warning
    reason: str | None = None  # for having no expectation

    def gate_of(self, size: int | None) -> float | None:
        """Return the gate of messages of *size* bytes; ``None`` if there is none."""
        if size is None or self.gate_size is None or size >= self.gate_size:
            return self.gate
        if self.floor is not None and size >= self.floor.size:
            return self.floor.gb_per_s
        return None

    def is_like(self, other: "Expected") -> bool:
        """Return whether *other* has the same figures, over any path."""
        return (self.low, self.high, self.gate) == (other.low, other.high, other.gate)


def unknown(reason: str) -> Expected:
    return Expected(reason=reason)


def of_figure(
    figure: float, *, gate: float, over: str, assumes: tuple[str, ...], source: str | None
) -> Expected:
    return Expected(
        low=figure,
        high=figure,
        default=figure,
        gate=gate,
        over=over,
        assumes=assumes,
        source=source,
    )


def to_plain(expected: Expected) -> dict[str, object]:
    """Return *expected* in JSON's own types."""

    def figure(value: float | None) -> float | None:
        return None if value is None else round(value, 1)

    is_known = expected.low is not None
    return {
        "gb_per_s": {"low": figure(expected.low), "high": figure(expected.high)}
        if is_known
        else None,
        "default_gb_per_s": figure(expected.default),
        "gate_gb_per_s": figure(expected.gate),
        "gate_bytes": expected.gate_size,
        "over": expected.over,
        "assumes": assumptions(expected) or None,
        "source": expected.source,
        "reason": expected.reason,
    }


def assumptions(expected: Expected) -> str:
    """Return the assumptions of *expected* in one line; empty without any."""
    shares, behind = ", ".join(expected.assumes), ", ".join(expected.behind)
    return f"{shares} ({behind})" if behind else shares


def text(expected: Expected) -> str:
    """Return e.g. ``382 to 414 GB/s``, or the reason for not knowing it."""
    if expected.low is None or expected.high is None:
        return f"not known: {expected.reason}"
    low, high = _figure(expected.low), _figure(expected.high)
    span = f"{low} GB/s" if low == high else f"{low} to {high} GB/s"
    return (
        f"{span}, {_figure(expected.default)} by default"
        if expected.is_wide and expected.default
        else span
    )


def _figure(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def of_payload(share: Range, payload: float, *, over: str, source: str) -> Expected:
    """Return the range that is *share* of *payload*."""
    return Expected(
        low=share.low * payload,
        high=share.high * payload,
        gate=share.low * payload * published.GATE_SHARE,
        over=over,
        assumes=(f"{share.low:g} to {share.high:g} of {payload:g} GB/s payload",),
        source=source,
    )


def of_links(
    share: Range, base: float, *, over: str, behind: tuple[str, ...], source: str | None
) -> Expected:
    """Return the range that is *share* of *base*, whose low end is the gate."""
    return Expected(
        low=share.low * base,
        high=share.high * base,
        default=base * share.high,
        gate=share.low * base,
        over=over,
        assumes=(f"{share.low:g} to {share.high:g} of {base:.1f} GB/s",),
        behind=behind,
        source=source,
    )


def beyond_switch(
    distance: Closeness, base: float, over: str, behind: tuple[str, ...], source: str
) -> Expected:
    """Return the part of *base* that remains on a path through one or two CPUs."""
    if distance < Closeness.SYS:
        sources = f"{source}; {published.NCCL_1264}"
        share = published.THROUGH_CPU
        return of_links(share, base, over=over, behind=behind, source=sources)
    sources = f"{source}; {published.DRANET}; perftest issue 241; ucx issue 11121"
    wide = of_links(published.ACROSS_SOCKETS, base, over=over, behind=behind, source=sources)
    return replace(wide, default=base * published.ACROSS_SOCKETS_DEFAULT, is_wide=True)


def both_ways(one: Expected) -> Expected:
    """Return what both directions carry together at once, where *one* is of one direction.

    What is known of one direction is twice as much at best; no gate is published.
    """
    if one.low is None or one.high is None or one.gate is None:
        return one
    share = 2 * published.BOTH_WAYS
    # The bridge between two CPUs can carry no more in both directions than in one.
    low = one.low if one.is_wide else share * one.low
    return replace(
        one,
        low=low,
        high=2 * one.high,
        default=None if one.default is None else share * one.default,
        gate=min(low, share * one.gate) * published.GATE_SHARE,
        over=f"{one.over}, both ways",
    )
