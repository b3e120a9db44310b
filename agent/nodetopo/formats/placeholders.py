"""Placeholders that a template of a manifest has in the place of values.

Manifests are published for ``envsubst`` (``$NAME``, ``${NAME}``), for Helm and its kin
(``{{ .Values.name }}``), and for readers (``<your-value>``).
"""

import re
from typing import Any

from nodetopo.errors import DecodeError

REPLACE = "replace it"
RENDER = "replace it, or render the template first, such as with `helm template`"

_LENGTH = 100
_EXPRESSION = rf"\{{\{{[^{{}}\n]{{0,{_LENGTH}}}\}}\}}"
_PLACEHOLDER = re.compile(
    rf"\$\{{[^{{}}\n]{{1,{_LENGTH}}}\}}"
    rf"|\$\([^()\n]{{1,{_LENGTH}}}\)"
    r"|\$[A-Za-z_][A-Za-z0-9_]*"
    rf"|{_EXPRESSION}"
    rf"|<[^<>\n]{{1,{_LENGTH}}}>"
)
_BARE = re.compile(rf"^[^#'\"\n]*?(?:^|[:\-\s])({_EXPRESSION})", re.MULTILINE)
"""An expression outside quotes, which YAML reads as a map within a map, or not at all."""


def placeholder(value: Any) -> str | None:
    """Return the first placeholder in a text; ``None`` in other values.

    A sound text can have one too, such as ``$(NAME)`` in a command: ask only for a value that
    cannot be used.
    """
    found = _PLACEHOLDER.search(value) if isinstance(value, str) else None
    return None if found is None else found[0]


def unfilled(path: str, value: Any) -> DecodeError | None:
    """Return the error for a *value* with a placeholder; ``None`` for one without."""
    found = placeholder(value)
    if found is None:
        return None
    cure = RENDER if found.startswith("{{") else REPLACE
    return DecodeError(
        path, f"this {'is' if value == found else 'has'} the placeholder {found}", cure
    )


def bare_expression(text: str) -> tuple[int, str] | None:
    """Return the line, from 1, of the first template expression outside quotes, and the expression.

    ``None`` where *text* has none.
    """
    found = _BARE.search(text)
    return None if found is None else (text.count("\n", 0, found.start(1)) + 1, found[1])
