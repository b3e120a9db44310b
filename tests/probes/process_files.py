"""Files of processes in a directory that stands for a procfs."""

from pathlib import Path


def stat_line(pid: int, name: str, *, started: int = 0) -> str:
    """Return ``/proc/<pid>/stat``; *started* is in ticks since the boot."""
    return f"{pid} ({name}) S 1 {'0 ' * 17}{started}{' 0' * 30}"


def write_process(procfs: Path, pid: int, *words: str, **files: str) -> Path:
    """Write a process with the arguments *words* and more *files*; return its directory."""
    place = procfs / str(pid)
    place.mkdir(parents=True)
    (place / "cmdline").write_text("".join(f"{word}\0" for word in words))
    (place / "stat").write_text(stat_line(pid, "a (b) c"))
    for name, text in files.items():
        (place / name).write_text(text)
    return place
