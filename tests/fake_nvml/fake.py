"""A machine for the fake library: its answers, faults and events, which a test may change."""

import os
from pathlib import Path


class FakeNvml:
    """A directory for ``NODETOPO_FAKE_NVML``; the library reads it again when it changes."""

    def __init__(self, directory: Path, answers: str) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        for name in ("events", "registered"):
            (directory / name).touch()
        self.answer(answers)

    def answer(self, answers: str) -> None:
        """Replace the machine; the format is described in ``libnvidia-ml.c``."""
        self._write("nvml.txt", answers)

    def fail(self, *faults: str) -> None:
        """Replace the faults; none at all heals the machine."""
        self._write("faults", "".join(f"{fault}\n" for fault in faults))

    def xid(self, gpu: int | str, code: int, count: int = 1) -> None:
        """Let *gpu*, or a MIG device ``gpu:slot``, have an XID, *count* times."""
        self.event(gpu, f"xid {code} {count}")

    def event(self, gpu: int | str, what: str) -> None:
        """Append an event; the format is described in ``events.h``."""
        # In one write, so that no reader sees half a line and writers may be many.
        file = os.open(self.directory / "events", os.O_WRONLY | os.O_APPEND)
        os.write(file, f"{gpu} {what}\n".encode())
        os.close(file)

    @property
    def registered(self) -> tuple[tuple[int, int, int], ...]:
        """The registrations so far: process, GPU, mask of event types."""
        lines = (line.split() for line in (self.directory / "registered").read_text().splitlines())
        return tuple((int(w[0]), int(w[1]), int(w[2], 0)) for w in lines if w[1] != "freed")

    @property
    def freed(self) -> int:
        """How many event sets were freed so far."""
        return (self.directory / "registered").read_text().count("freed")

    def _write(self, name: str, text: str) -> None:
        # By rename: the library must never see half a file, and notices the new inode.
        fresh = self.directory / f"{name}.new"
        fresh.write_text(text)
        fresh.replace(self.directory / name)
