"""Documents that were made to harm: each is beyond a limit, and each is refused.

Those that are too large to keep as files are built here; others lie in ``corpus``.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

_LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 12)
)
_NESTED = "[" * 50_000 + "]" * 50_000
_ENTITIES = "".join(f'<!ENTITY e{n} "' + f"&e{n - 1};" * 10 + '">' for n in range(1, 12))


def snapshot(**parts: Any) -> str:
    """Return a snapshot with these *parts*."""
    return json.dumps({"schema": "nodetopo/v1", **parts})


def address(number: int) -> str:
    """Return the PCI address with that *number*."""
    return f"{number >> 8:04x}:{number & 255:02x}:00.0"


def _gpus(count: int) -> list[dict[str, Any]]:
    return [{"index": index, "pci": address(index)} for index in range(count)]


def _path(hops: list[str]) -> str:
    return snapshot(gpus=[{"index": 0, "path": {"root": "pci0000:00", "hops": hops}}])


def xml(*, gpus: int = 0, nics: int = 0, cpu: str = 'numaid="0" affinity="ff"') -> str:
    """Return an NCCL topology with so many devices, all below one CPU."""
    below = [
        f'<pci busid="{address(number)}" class="0x030200"><gpu dev="{number}" sm="90"/></pci>'
        for number in range(gpus)
    ]
    below += [
        f'<pci busid="{address(4096 + number)}" class="0x0200"><nic><net name="n{number}"/></nic>'
        "</pci>"
        for number in range(nics)
    ]
    return f'<system version="1"><cpu {cpu}>{"".join(below)}</cpu></system>'


def header(*, gpus: int, nics: int) -> str:
    """Return the first line of a matrix with so many columns."""
    names = [f"GPU{number}" for number in range(gpus)] + [f"NIC{number}" for number in range(nics)]
    return "\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity\n"


def matrix(*, gpus: int, nics: int = 0, numa: str = "0") -> str:
    """Return a matrix in which all devices are SYS apart."""
    first = header(gpus=gpus, nics=nics)
    names = first.split("\tCPU")[0].split()
    return first + "".join(
        "\t".join([row, *("X" if row == column else "SYS" for column in names)])
        + (f"\t0-7\t{numa}\n" if row.startswith("GPU") else "\n")
        for row in names
    )


_SNAPSHOTS: Mapping[str, Callable[[], str]] = {
    "257 GPUs": lambda: snapshot(gpus=_gpus(257)),
    "9,999 GPUs": lambda: snapshot(gpus=_gpus(9999)),
    "1,025 HCAs": lambda: snapshot(hcas=[{"name": f"n{n}"} for n in range(1025)]),
    "1,025 NUMA nodes": lambda: snapshot(numa_nodes=[{"id": n, "cpus": ""} for n in range(1025)]),
    "NUMA node -1": lambda: snapshot(gpus=[{"index": 0, "numa_node": -1}]),
    "NUMA node 65,536": lambda: snapshot(gpus=[{"index": 0, "numa_node": 65536}]),
    "GPU 10,000": lambda: snapshot(gpus=[{"index": 10000}]),
    "no hops": lambda: _path([]),
    "65 hops": lambda: _path([address(n) for n in range(65)]),
    "300,000 hops": lambda: _path([address(n & 0xFFFF) for n in range(300_000)]),
    "a hop twice": lambda: _path([address(1), address(2), address(1)]),
    "65 links of a GPU": lambda: snapshot(
        gpus=[{"index": 0}], nvlinks=[{"gpu": 0, "link": 0, "is_active": True}] * 65
    ),
    "negative memory": lambda: snapshot(gpus=[{"index": 0, "memory_mib": -1}]),
    "a width of 256 lanes": lambda: snapshot(gpus=[{"index": 0, "pcie": {"width": 256}}]),
    "an endless speed": lambda: snapshot(
        gpus=[{"index": 0, "c2c": {"is_enabled": True, "links": 1, "speed_mbps": 1 << 63}}]
    ),
    "CPUs in all lists": lambda: snapshot(
        cpu={"online": "0", "cores": [f"{n}-65535" for n in range(4000)]}
    ),
    "CPU 65,536": lambda: snapshot(cpu={"online": "65536"}),
    "1e400": lambda: snapshot(
        hcas=[{"name": "n", "ports": [{"number": 1, "rate_gbps": 7}]}]
    ).replace("7", "1e400"),
    "5,000 digits": lambda: f'{{"schema": "nodetopo/v1", "gpus": [{{"index": {"9" * 5000}}}]}}',
    "4,000 digits": lambda: f'{{"schema": "nodetopo/v1", "gpus": [{{"index": {"9" * 4000}}}]}}',
    "NaN": lambda: '{"schema": "nodetopo/v1", "captured_at": NaN}',
    "a key twice": lambda: '{"schema": "nodetopo/v1", "gpus": [], "gpus": []}',
    "nested 50,000 deep": lambda: snapshot(weather="x").replace('"x"', _NESTED),
    "5 million lists": lambda: '{"a": [' + "[]," * 5_000_000 + "[]]}",
    "5 million numbers": lambda: '{"a": [' + "1," * 5_000_000 + "1]}",
    "999,990 lists": lambda: '{"a": [' + "[]," * 499_995 + "[]]}",
    "a text of 300 KiB": lambda: snapshot(node="x" * (300 << 10)),
    "a schema of 15 MiB": lambda: json.dumps({"schema": "x" * (15 << 20)}),
    "70,000 issues": lambda: snapshot(
        issues=[{"probe": "p", "subject": "s", "reason": "r"}] * 70_000
    ),
}

_MATRICES: Mapping[str, Callable[[], str]] = {
    "12,000 lines of a name alone": lambda: "GPU0\n" * 12_000,
    "257 GPUs": lambda: header(gpus=257, nics=0),
    "2,500 NICs": lambda: header(gpus=1, nics=2500),
    "1,025 NICs": lambda: header(gpus=8, nics=1025),
    "1,025 NUMA nodes": lambda: matrix(gpus=1, numa="0-1024"),
    "NUMA node 65,536": lambda: matrix(gpus=1, numa="65536"),
    "one line of 1 MiB": lambda: "GPU0 " * 200_000,
    "200,000 headers": lambda: "GPU0\n" * 200_000,
    "a million empty lines": lambda: header(gpus=1, nics=0) + "\n" * 1_000_000,
    "1 MiB of styles": lambda: "\x1b[4mGPU0" * 100_000,
    "100,000 names of a row": lambda: matrix(gpus=1) + "NIC0: n\n" * 100_000,
}

_TOPOLOGIES: Mapping[str, Callable[[], str]] = {
    "257 GPUs": lambda: xml(gpus=257),
    "2,000 GPUs": lambda: xml(gpus=2000),
    "1,025 NICs": lambda: xml(gpus=1, nics=1025),
    "5,000 elements": lambda: xml(gpus=2500),
    "1,025 CPUs": lambda: '<system version="1">' + '<cpu numaid="0"/>' * 1025 + "</system>",
    "NUMA node 65,536": lambda: xml(gpus=1, cpu='numaid="65536"'),
    "NUMA node of 5,000 digits": lambda: xml(gpus=1, cpu=f'numaid="{"9" * 5000}"'),
    "CPU masks": lambda: (
        '<system version="1">'
        + f'<cpu numaid="0" affinity="{",".join(["ffffffff"] * 256)}"/>' * 440
        + "</system>"
    ),
    "a mask of 1 MiB": lambda: xml(gpus=1, cpu=f'numaid="0" affinity="{"ffffffff," * 110_000}f"'),
    "a switch below itself": lambda: (
        '<system version="1"><cpu numaid="0" affinity="f">'
        + '<pci busid="0000:01:00.0" class="0x060400">' * 8
        + '<pci busid="0000:02:00.0" class="0x030200"/>'
        + "</pci>" * 8
        + "</cpu></system>"
    ),
    "nested 20,000 deep": lambda: '<system version="1">' + "<pci>" * 20_000,
    "entities": lambda: f'<!DOCTYPE s [<!ENTITY e0 "x">{_ENTITIES}]><system>&e11;</system>',
    "an entity of a file": lambda: (
        '<!DOCTYPE s [<!ENTITY e SYSTEM "file:///etc/passwd">]><system>&e;</system>'
    ),
    "100,000 attributes": lambda: "<system " + " ".join(f'a{n}=""' for n in range(90_000)) + "/>",
    "a name of 1 MiB": lambda: f"<{'a' * 1_000_000}/>",
}

_TRACES: Mapping[str, Callable[[], str]] = {
    "a million and one jobs": lambda: "duration_s,gpus\n" + "1,1\n" * 1_000_001,
    "2.7 million jobs": lambda: "arrival_s,duration_s,gpus\n" + "1,1,1\n" * 2_700_000,
    "1e400 seconds": lambda: "duration_s,gpus\n1e400,1\n",
    "NaN seconds": lambda: "duration_s,gpus\nnan,1\n",
    "-1 GPUs": lambda: "duration_s,gpus\n1,-1\n",
    "5,000 digits": lambda: f"duration_s,gpus\n1,{'9' * 5000}\n",
    "10,001 quantiles": lambda: "quantile,seconds\n" + "0.5,1\n" * 10_001,
    "a cell of 15 MiB": lambda: f"duration_s,gpus\n1,{'9' * (15 << 20)}\n",
    "a header of 15 MiB": lambda: "a," * (7 << 20),
}

_YAML: Mapping[str, Callable[[], str]] = {
    "a billion laughs": lambda: _LAUGHS,
    "a list that holds itself": lambda: "a: &a [*a]\n",
    "nested 50,000 deep": lambda: _NESTED,
    "a key twice": lambda: "kind: Pod\nkind: Pod\n",
    "1e400": lambda: '{"kind": "Pod", "spec": 1e400}',
    "infinity": lambda: "kind: .inf\n",
    "5,000 digits": lambda: f"kind: {'9' * 5000}\n",
    "200 KiB of letters": lambda: "[" + "a," * (100 << 10) + "a]",
    "2 MiB of letters": lambda: "- a\n" * (500 << 10),
    "one word of 200 KiB": lambda: "x" * (200 << 10),
}

_NEARLY = (
    *(
        "GPU0 ",
        "GPU 0: ",
        "GPU0 X ",
        "size count ",
        "#bytes",
        "# Rank ",
        "{",
        "<!--",
        "NAME  ",
        "\n",
    ),
    *(
        "kind: List\n",
        "version:\n",
        "Name: \n",
        "hca_id: ",
        "link a",
        "CA '",
        '{"a":',
        "NCCL ",
        "[",
    ),
    *(
        "apiVersion: ",
        "00:00.0 A",
        "-[0000:",
        "\t",
        "> ",
        "``` ",
        "=",
        "nvidia.com/gpu",
        "PU L",
        "a,",
    ),
)
"""Beginnings of what signatures look for, without the rest."""


def _filled(part: str, length: int = 16 << 20) -> str:
    return part * (length // len(part))


_FILES = ("bandwidths", "levels", "manifest")

HOSTILE: Mapping[str, Mapping[str, Callable[[], str]]] = MappingProxyType(
    {
        "snapshot": _SNAPSHOTS,
        "topo-m": _MATRICES,
        "nccl-xml": _TOPOLOGIES,
        "trace": _TRACES,
        "bandwidth-log": {
            "a million ranks": lambda: (
                "# nThread 1 nGpus 1 \n"
                + "#  Rank  0 Group  0 Pid 1 on h device 0 [0x01] G\n" * 300_000
            ),
            "JSON that is nested 50,000 deep": lambda: f'{{"bus_bw": {_NESTED}}}',
        },
        **dict.fromkeys(_FILES, _YAML),
        "nodes": {
            **{name: _YAML[name] for name in ("a billion laughs", "nested 50,000 deep", "1e400")},
            "30 million lists": lambda: '{"a": [' + "[]," * 30_000_000 + "[]]}",
        },
        "config": {
            name: _YAML[name]
            for name in ("a billion laughs", "a list that holds itself", "one word of 200 KiB")
        },
        "toml": {
            "a key of 60,000 parts": lambda: ".".join("a" * 60_000) + " = 1",
            "nested 50,000 deep": lambda: f"a = {_NESTED}",
            "256 KiB": lambda: "a = 1\n" * (50 << 10),
        },
    }
)
"""By reader and name, as functions that build the text."""

_RANKED = "[1]" * 65 + " z #  Rank  0 \n" + ("[1]" * 64 + "x\n") * 1000
"""Lines that almost have the prefix of the first, whose ranks can be put together in many ways."""

_SHEDDERS = "".join(f"{n:03}{'[' * 190} #  Rank  0 \n" for n in range(64)) + "[[[ x\n" * 300_000
"""A long log with as many long prefixes as are learned."""

ACCEPTED: Mapping[str, Mapping[str, Callable[[], str]]] = MappingProxyType(
    {
        "snapshot": {
            "256 GPUs": lambda: snapshot(gpus=_gpus(256)),
            "64 hops": lambda: snapshot(
                gpus=[
                    {"index": 0, "path": {"root": "r", "hops": [address(n) for n in range(64)]}},
                    {"index": 1, "numa_node": 65535},
                ]
            ),
        },
        "nccl-xml": {"256 GPUs": lambda: xml(gpus=256)},
        "bandwidth-log": {
            "one line of 8 MiB": lambda: "#  Rank  0 " + "x" * (8 << 20),
            "ranks": lambda: _RANKED,
            "64 prefixes": lambda: _SHEDDERS,
            "a matrix of 16,000 columns": lambda: (
                "memcpy CE GPU(row) -> GPU(column) (GB/s)\n"
                + " ".join(map(str, range(16_000)))
                + "\n"
                + ("0 " + "1.0 " * 16_000 + "\n") * 100
            ),
        },
        "signature": {
            **{f"16 MiB of {part!r}": partial(_filled, part) for part in _NEARLY},
            "an XML of comments": lambda: "<!-- -->" * 10_000,
        },
        "scrubbed-text": {
            f"64,000 characters of {part!r}": partial(_filled, part, 64_000)
            for part in ("a", "-", "a-", "token", "--token", "token ", "token=", "/a", '"\\', "a.")
        },
        "trace": {"20,000 jobs": lambda: "duration_s,gpus\n" + "1,1\n" * 20_000},
    }
)
"""What is just within the limits, and read."""

LARGEST: Mapping[str, Mapping[str, Callable[[], str]]] = MappingProxyType(
    {
        "snapshot": {
            "1,024 HCAs and NUMA nodes": lambda: snapshot(
                gpus=_gpus(2),
                hcas=[{"name": f"n{n}"} for n in range(1024)],
                numa_nodes=[{"id": n, "cpus": str(n)} for n in range(1024)],
            ),
        },
        "topo-m": {"256 GPUs": lambda: matrix(gpus=256)},
        "nccl-xml": {"256 GPUs and 1,024 NICs": lambda: xml(gpus=256, nics=1024)},
    }
)
"""The same where all commands together take longer than :data:`tests.fuzz.batch.DOCUMENT_S`."""
