"""Sets of GPUs as bit masks of positions in the snapshot."""


def bits(mask: int) -> tuple[int, ...]:
    """Return the single-bit masks of *mask*, ascending."""
    singles = []
    while mask:
        singles.append(mask & -mask)
        mask &= mask - 1
    return tuple(singles)


def positions(mask: int) -> tuple[int, ...]:
    """Return the positions that *mask* holds, ascending."""
    return tuple(bit.bit_length() - 1 for bit in bits(mask))
