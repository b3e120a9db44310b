import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetopo.errors import DecodeError
from nodetopo.formats.loader_cache import CachedLibrary, cached_libraries
from tests.fake_nvml.build import c_compiler
from tests.formats.loader_caches import (
    AARCH64,
    HEADER_BYTES,
    I386,
    PPC64LE,
    X32,
    X86_64,
    Entry,
    loader_cache,
    loader_cache_of_old,
)

LIB = "/usr/local/nvidia/lib64"
MACHINES = ("x86_64", "aarch64", "ppc64le")
ENTRIES: tuple[Entry, ...] = (
    ("libcuda.so.1", f"{LIB}/libcuda.so.1", X86_64),
    ("libcuda.so.1", "/usr/lib/i386-linux-gnu/libcuda.so.1", I386),
    ("libcuda.so.1", "/usr/libx32/libcuda.so.1", X32),
    ("libcuda.so.1", "/usr/lib/aarch64-linux-gnu/libcuda.so.1", AARCH64),
    ("libcuda.so.1", "/usr/lib/powerpc64le-linux-gnu/libcuda.so.1", PPC64LE),
)
CACHE = loader_cache(*ENTRIES)


def found(data: bytes, machine: str = "x86_64") -> list[CachedLibrary]:
    return list(cached_libraries(data, machine))


@pytest.mark.parametrize("made", [loader_cache, loader_cache_of_old])
def test_libraries_for_the_machine_are_found_in_either_format(made: Callable[..., bytes]) -> None:
    data = made(*ENTRIES)
    assert found(data) == [CachedLibrary("libcuda.so.1", f"{LIB}/libcuda.so.1")]
    assert [one.path for one in found(data, "aarch64")] == [ENTRIES[3][1]]
    assert [one.path for one in found(data, "ppc64le")] == [ENTRIES[4][1]]


@pytest.mark.parametrize("machine", ["i686", "armv7l", "riscv64", ""])
def test_for_a_machine_without_drivers_there_are_none(machine: str) -> None:
    assert found(CACHE, machine) == []


def test_what_ldconfig_writes_is_read_as_ldconfig_prints_it(tmp_path: Path) -> None:
    directory = tmp_path / "lib"
    directory.mkdir()
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        output = directory / name.replace(".so.1", ".so.580.95.05")
        command = [*c_compiler(), "-shared", "-nostdlib", f"-Wl,-soname,{name}", "-x", "c"]
        subprocess.run([*command, "/dev/null", "-o", str(output)], check=True)
    config, cache = tmp_path / "ld.so.conf", tmp_path / "ld.so.cache"
    config.write_text(f"{directory}\n")
    ldconfig = ["/sbin/ldconfig", "-C", str(cache)]
    subprocess.run([*ldconfig, "-f", str(config)], check=True)
    printed = subprocess.run([*ldconfig, "-p"], check=True, capture_output=True, text=True).stdout

    libraries = {one for machine in MACHINES for one in found(cache.read_bytes(), machine)}
    assert {f"{directory}/{name}" for name in ("libcuda.so.1", "libnvidia-ml.so.1")} <= {
        one.path for one in libraries
    }
    lines = (line.split() for line in printed.splitlines() if " => " in line)
    assert {(one.name, one.path) for one in libraries} == {(line[0], line[-1]) for line in lines}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "not a cache"),
        (b"ld.so-1.7.0", "not a cache"),
        (b"ld.so-1.7.0\0\xff\xff\xff\xff", "not a cache"),
        (b"glibc-ld.so.cache1.1", "not a cache"),
        (b"glibc-ld.so.cache2.0" + bytes(28), "not a cache"),
        (loader_cache(*ENTRIES, order=3), "big-endian"),
        (CACHE[: HEADER_BYTES + 30], "before the last of 5 entries"),
        (CACHE[:20] + b"\xff\xff\xff\xff" + CACHE[24:], "before the last of 4294967295 entries"),
    ],
)
def test_what_is_no_cache_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(DecodeError, match=problem):
        found(data)


@pytest.mark.parametrize("at", [0, 4, 8])
@pytest.mark.parametrize("value", [0xFFFFFFFF, len(CACHE), len(CACHE) - 1])
def test_an_entry_that_points_nowhere_is_left_out(at: int, value: int) -> None:
    begin = HEADER_BYTES + at
    broken = CACHE[:begin] + struct.pack("<I", value) + CACHE[begin + 4 :]
    assert found(broken) == []


@pytest.mark.parametrize("path", ["lib/libcuda.so.1", "", "/" + "x" * 5000])
def test_a_path_that_cannot_be_is_left_out(path: str) -> None:
    assert found(loader_cache(("libcuda.so.1", path, X86_64))) == []


@given(st.integers(0, len(CACHE) - 1), st.binary(min_size=1, max_size=8))
def test_no_damage_is_more_than_a_refusal(at: int, damage: bytes) -> None:
    broken = CACHE[:at] + damage + CACHE[at + len(damage) :]
    try:
        libraries = found(broken)
    except DecodeError:
        return
    assert len(libraries) <= len(ENTRIES)
