"""JSON from untrusted sources, with limits on its size and depth."""

import json
from typing import Any

from nodetopo.model import strict_json

MAX_CHARACTERS = 4 << 20
"""Largest text. The kubelet's checkpoint of 250 pods with 8 devices each is under 1 MiB."""

MAX_NODES = 200_000
"""Most commas and opening brackets, before anything is built: 4 MiB of ``{},`` would take 130 MiB
and three seconds. That checkpoint has 6,000, and 40,000 with 32 replicas of each GPU."""

MAX_DEPTH = 64
"""Deepest nesting; the kubelet's configuration is 6 deep, a Node object 8 with managedFields."""


def load(text: str, *, may_repeat: bool = False) -> Any:
    """Return the value of *text*.

    Args:
        may_repeat: whether a key may stand twice in an object; the last one counts.

    Raises:
        ValueError: not JSON, or beyond a limit. The message says what, and where.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"larger than {MAX_CHARACTERS >> 20} Mi characters")
    if sum(map(text.count, ",[{")) > MAX_NODES:
        raise ValueError(f"more than {MAX_NODES} values")
    try:
        value = strict_json.loads(text, may_repeat=may_repeat)
    except RecursionError:
        raise ValueError(f"nested more than {MAX_DEPTH} deep") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"not JSON: {error.msg}: {place}") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        containers = (it.values() if isinstance(it, dict) else it for it in level)
        level = [it for inner in containers for it in inner if isinstance(it, dict | list)]
        if not level:
            return value
    raise ValueError(f"nested more than {MAX_DEPTH} deep")
