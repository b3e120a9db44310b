"""Sets of GPUs as bit masks of positions in the snapshot."""


def bits(mask: int) -> tuple[int, ...]:
    """Return the single-bit masks of *mask*, ascending."""
    found = []
    while mask:
        found.append(mask & -mask)
        mask &= mask - 1
    return tuple(found)


def positions(mask: int) -> tuple[int, ...]:
    """Return the positions that *mask* holds, ascending."""
    return tuple(bit.bit_length() - 1 for bit in bits(mask))
