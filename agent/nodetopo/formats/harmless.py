"""Text of others, made harmless: one line that steers no terminal and breaks no reader.

Names and messages come from firmware, files, pods, other plugins and servers. Whatever prints,
logs or publishes them passes them through here.
"""

import re

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor moves (ECMA-48 5.4)
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC and the other strings
    r"|\x1b[ -/]*[0-~]?"  # all other sequences
)

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that move the cursor, reorder text, or print nothing. ``Cs`` are halves of
characters, which no UTF-8 has."""


def clean(text: str) -> str:
    """Return *text* as one line without escape sequences, controls and direction marks."""
    if text.isascii() and text.isprintable():
        return text
    import unicodedata  # noqa: PLC0415 - 0.8 MiB that the daemon does without

    plain = _ESCAPES.sub("", text)
    spaced = "".join(" " if char in "\t\n\r\v\f\u2028\u2029" else char for char in plain)
    return "".join(char for char in spaced if unicodedata.category(char) not in _INVISIBLE)


def harmless(text: str, most: int) -> str:
    """Return *text* cleaned and with at most *most* characters, its start and its end."""
    if len(text) > most:
        half = most // 2
        text = f"{text[:half]}…{text[half + 1 - most :]}"
    return clean(text)
