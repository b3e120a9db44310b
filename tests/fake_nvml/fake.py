"""A machine for the fake library: its answers and its faults, which a test may change."""

from pathlib import Path


class FakeNvml:
    """A directory for ``NODETOPO_FAKE_NVML``; the library reads it again when it changes."""

    def __init__(self, directory: Path, answers: str) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.answer(answers)

    def answer(self, answers: str) -> None:
        """Replace the machine; the format is described in ``libnvidia-ml.c``."""
        self._write("nvml.txt", answers)

    def fail(self, *faults: str) -> None:
        """Replace the faults; none at all heals the machine."""
        self._write("faults", "".join(f"{fault}\n" for fault in faults))

    def _write(self, name: str, text: str) -> None:
        # By rename: the library must never see half a file, and notices the new inode.
        fresh = self.directory / f"{name}.new"
        fresh.write_text(text)
        fresh.replace(self.directory / name)
