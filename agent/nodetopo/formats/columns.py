"""How much room text takes on a terminal and in a drawing."""


def width(text: str) -> int:
    """Return how many terminal columns *text* takes."""
    if text.isascii() and text.isprintable():
        return len(text)
    import unicodedata  # noqa: PLC0415 - 0.8 MiB that the daemon does without

    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )
