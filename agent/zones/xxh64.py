"""XXH64, the 64-bit hash that other programs name sets of pods by; not for secrets.

Written from its specification (xxHash, doc/xxhash_spec.md v0.2.0).
"""

from struct import unpack_from

_MASK = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
"""The specification's five primes."""

_STRIPE = 32
"""Bytes that the four lanes take at once."""


def xxh64(data: bytes, seed: int = 0) -> int:
    """Return the hash of *data*, from 0 to 2⁶⁴ − 1."""
    end = len(data) - len(data) % _STRIPE
    found = _striped(data, seed, end) if end else seed + _P5
    return _avalanched(_tail(data, end, (found + len(data)) & _MASK))


def _striped(data: bytes, seed: int, end: int) -> int:
    lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
    for offset in range(0, end, _STRIPE):
        words = unpack_from("<4Q", data, offset)
        lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
    found = sum(map(_rotated, lanes, (1, 7, 12, 18))) & _MASK
    for lane in lanes:
        found = ((found ^ _round(0, lane)) * _P1 + _P4) & _MASK
    return found


def _tail(data: bytes, start: int, found: int) -> int:
    """Take in what is left after the last whole stripe: eight bytes at once, four, and one."""
    while start + 8 <= len(data):
        (word,) = unpack_from("<Q", data, start)
        found = (_rotated(found ^ _round(0, word), 27) * _P1 + _P4) & _MASK
        start += 8
    if start + 4 <= len(data):
        (word,) = unpack_from("<I", data, start)
        found = (_rotated(found ^ (word * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        start += 4
    for byte in data[start:]:
        found = _rotated(found ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    return found


def _avalanched(found: int) -> int:
    found = (found ^ found >> 33) * _P2 & _MASK
    found = (found ^ found >> 29) * _P3 & _MASK
    return found ^ found >> 32


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK
