"""The output of every reader for every machine of ``tests/nodes``, for review.

Labels and checks are tables of all machines, everything else is a file a machine.
"""

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from nodetopo.model.codec import decode
from nodetopo.tools.node_rules import node_rules
from scripts.generators.compose import NODES
from tests.cli import tables
from tests.cli.outcome import READERS, printed, slug, topo_m, transcript

FLAGS = {"--snapshot": "", "--topo-m": "topo-m"}
"""A flag that takes a machine, and the folder of what is printed for it."""


def made() -> Mapping[Path, str]:
    """Return the tables, and the transcripts and drawing of each machine."""
    texts: dict[Path, str] = {}
    outcomes: dict[str, dict[str, Mapping[str, str]]] = {"labels": {}, "checks": {}}
    for name in machines():
        texts[NODES / name / "golden" / "topo.svg"] = drawing(name)
        for flag, folder in FLAGS.items():
            for command in READERS:
                text = of_machine(name, flag, command)
                table = tables.TABLED.get(command)
                if table is None:
                    texts[NODES / name / "golden" / folder / f"{slug(command)}.txt"] = text
                    continue
                found = tables.labels_in(text) if table == "labels" else tables.checks_in(text)
                place = outcomes[table].setdefault(tables.source(name, flag), {})
                outcomes[table][tables.source(name, flag)] = {**place, **found}
    for table, by_source in outcomes.items():
        keys = sorted({key for found in by_source.values() for key in found})
        if table == "checks":
            keys = [tables.key(rule.code) for rule in node_rules()]
        by_key = {
            key: {source: found.get(key, tables.ABSENT) for source, found in by_source.items()}
            for key in keys
        }
        texts[tables.GOLDENS / f"{table}.txt"] = tables.written(by_key)
    return texts


def owned() -> Iterable[Path]:
    """Return the stored tables, transcripts and drawings."""
    yield from tables.GOLDENS.iterdir()
    yield from (path for path in NODES.glob("*/golden/**/*") if path.is_file())


def machines() -> list[str]:
    """Return the machines by name of their directory."""
    return sorted(path.name for path in NODES.iterdir() if path.is_dir())


def of_machine(name: str, flag: str, command: tuple[str, ...]) -> str:
    """Return the transcript of *command* on the machine *name*, which *flag* is given."""
    path = NODES / name / "snapshot.json"
    if flag == "--snapshot":
        return transcript(command, flag, path)
    with tempfile.TemporaryDirectory() as directory:
        text = Path(directory) / "topo-m.txt"
        text.write_text(topo_m(decode(path.read_text("utf-8")).snapshot), "utf-8")
        return transcript(command, flag, text)


def drawing(name: str) -> str:
    """Return the drawing of the machine *name*."""
    path = NODES / name / "snapshot.json"
    return printed("topo", "tree", "--snapshot", str(path), "-o", "svg")
