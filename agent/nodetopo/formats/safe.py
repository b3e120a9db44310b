"""Text from untrusted sources, read within limits of size, number of values, and depth.

JSON and TOML become plain values here. YAML does in :mod:`nodetopo.formats.document`, under the
limits stated here: its parser is not loaded where nothing is YAML.
"""

import json
from typing import Any

from msgspec import Struct

from nodetopo.model import strict_json


class Limits(Struct, frozen=True):
    """The limits of one format; a text beyond them is refused before anything is built."""

    characters: int
    nodes: int  # of JSON: commas and opening brackets; of YAML: scalars, lists, and maps
    depth: int

    def check_size(self, text: str) -> None:
        """Raise ValueError for a *text* that is too large."""
        if len(text) > self.characters:
            raise ValueError(f"larger than {self.characters >> 20} Mi characters")


JSON = Limits(characters=4 << 20, nodes=200_000, depth=64)
"""The kubelet's checkpoint of 250 pods with 8 devices each is under 1 MiB and has 6,000 nodes, and
40,000 with 32 replicas of each GPU; 4 MiB of ``{},`` would take 130 MiB and three seconds. The
kubelet's configuration is 6 deep, a Node object 8 with managedFields."""

YAML = Limits(characters=2 << 20, nodes=100_000, depth=64)
"""The API server takes objects of 1.5 MiB (etcd's ``--max-request-bytes``). Nodes that aliases
repeat count: 100,000 are a second of work. Real manifests have a few thousand; a text of 2 MiB that
lists single letters has a million. The pod template in a CronJob lies 12 deep; PyYAML's C parser
recurses."""

TOML_CHARACTERS = 256 << 10
"""containerd's own default configuration, all plugins written out, is 20 KiB."""

TOML_DOTS = 256
"""In one line. The parser takes time that grows with the square of the parts of a dotted key: 104 s
for one of 60,000 on Python 3.11. With both limits no text of those tried takes 2 s."""

_SHOWN = 200
"""Characters of the TOML parser's message, which repeats long keys."""


def load_json(text: str, *, may_repeat: bool = False) -> Any:
    """Return the value of *text*; with *may_repeat* the last of a repeated key counts.

    Raises:
        ValueError: not JSON, or beyond a limit. The message says what, and where.
    """
    JSON.check_size(text)
    if sum(map(text.count, ",[{")) > JSON.nodes:
        raise ValueError(f"more than {JSON.nodes} values")
    too_deep = f"nested more than {JSON.depth} deep"
    try:
        value = strict_json.loads(text, may_repeat=may_repeat)
    except RecursionError:
        raise ValueError(too_deep) from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"not JSON: {error.msg}: {place}") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(JSON.depth):
        containers = (it.values() if isinstance(it, dict) else it for it in level)
        level = [it for inner in containers for it in inner if isinstance(it, dict | list)]
        if not level:
            return value
    raise ValueError(too_deep)


def load_toml(text: str) -> dict[str, Any]:
    """Return the document in *text*.

    Raises:
        ValueError: not TOML, or beyond a limit. The message says what, and where.
    """
    if len(text) > TOML_CHARACTERS:
        raise ValueError(f"larger than {TOML_CHARACTERS >> 10} Ki characters")
    for number, line in enumerate(text.splitlines(), start=1):
        if line.count(".") > TOML_DOTS:
            raise ValueError(f"more than {TOML_DOTS} dots in line {number}")
    import tomllib  # noqa: PLC0415 - 10 ms before GPUs are served, and few nodes have such a file

    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    except ValueError as error:  # TOMLDecodeError, and numbers of thousands of digits
        raise ValueError(f"not TOML: {str(error)[:_SHOWN]}") from None
