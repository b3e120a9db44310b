"""Words of a simulated trace."""


def counted(count: int, what: str) -> str:
    """Return *count* of *what*, in the plural unless it is one: "1 job", "2,000 jobs"."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
