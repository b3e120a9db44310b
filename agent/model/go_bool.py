"""Truth values as programs in Go read them."""

_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")


def go_bool(text: str) -> bool | None:
    """Return what Go's ``strconv.ParseBool`` makes of *text*; ``None`` where that is an error."""
    return True if text in _TRUE else False if text in _FALSE else None
