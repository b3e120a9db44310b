"""What hwloc finds in the sysfs trees that it keeps for its own tests.

The facts are those of its reference outputs, open-mpi/hwloc tests/hwloc/linux at 3b37b024aa3f:
the file of the same name as `.xml` or `.console`. Where we differ, the text below a table says
why.
"""

from collections.abc import Mapping

CAPTURES = (
    *("32em64t-2ib", "40intel64-pcilocality", "48amd64-sparse", "dgx-gb10"),
    *("fakepcilocalities", "nvidiagpunumanodes", "pci-conflicts"),
)
FOUR_NODES = {
    0: ("0,4,8,12,16,20,24,28,32,36", 137425154048),
    1: ("1,5,9,13,17,21,25,29,33,37", 137438953472),
    2: ("2,6,10,14,18,22,26,30,34,38", 137438953472),
    3: ("3,7,11,15,19,23,27,31,35,39", 137438953472),
}
FOUR_SOCKETS = {node: cpus for node, (cpus, _) in FOUR_NODES.items()}
GPU_MEMORY = ("", 15728640 << 10)
NUMA: Mapping[str, Mapping[int, tuple[str, int]]] = {
    "32em64t-2ib": {0: ("0-7", 17149054976), 1: ("8-15", 17179869184)},
    "40intel64-pcilocality": FOUR_NODES,
    "48amd64-sparse": {
        0: ("0-5", 8386460 << 10),
        1: ("6-11", 16 << 30),
        2: ("12-17", 8 << 30),
        33: ("18-23", 16 << 30),
        34: ("24-29", 8 << 30),
        45: ("30-35", 16 << 30),
        72: ("36-41", 8 << 30),
        73: ("42-47", 16 << 30),
    },
    "dgx-gb10": {0: ("0-19", 128520671232)},
    "fakepcilocalities": FOUR_NODES,
    "nvidiagpunumanodes": {
        0: ("0-15", 129839104 << 10),
        8: ("88-103", 133952000 << 10),
        **dict.fromkeys(range(250, 256), GPU_MEMORY),
    },
    "pci-conflicts": FOUR_NODES,
}
"""Capture → node → CPUs that are online, bytes."""

DISTANCES: Mapping[str, tuple[tuple[int, ...], ...]] = {
    "32em64t-2ib": ((10, 21), (21, 10)),
    "48amd64-sparse": (
        (10, 16, 16, 22, 16, 22, 16, 22),
        (16, 10, 22, 16, 16, 22, 22, 16),
        (16, 22, 10, 16, 16, 16, 16, 16),
        (22, 16, 16, 10, 16, 16, 22, 22),
        (16, 16, 16, 16, 10, 16, 16, 22),
        (22, 22, 16, 16, 16, 10, 22, 16),
        (16, 22, 16, 22, 16, 22, 10, 16),
        (22, 16, 16, 22, 22, 16, 16, 10),
    ),
    "pci-conflicts": (
        *((10, 20, 20, 20), (20, 10, 20, 20)),
        *((20, 20, 10, 20), (20, 20, 20, 10)),
    ),
}

UNCORE = (
    "08.0 08.3 08.4 09.0 09.3 09.4 0a.0 0a.1 0a.2 0a.3 0b.0 0b.3 0c.0 0c.1 0c.2 0c.3 0c.6 0c.7 "
    "0d.0 0d.1 0d.2 0d.3 0d.6 0e.0 0e.1 0f.0 0f.1 0f.2 0f.3 0f.4 0f.5 0f.6 10.0 10.1 10.2 10.3 "
    "10.4 10.5 10.6 10.7 11.0 13.0 13.1 13.4 13.5 13.6"
)
DMA = "04.0 04.1 04.2 04.3 04.4 04.5 04.6 04.7 05.0 05.2 05.4"
USB = "1a.0 1a.1 1a.7 1c.0 1d.0 1d.1 1d.2 1d.7"
SMALL_ROOT = "01.0 03.0 05.0 07.0 09.0 14.0"
PCI: Mapping[str, Mapping[str, tuple[int | None, str]]] = {
    "32em64t-2ib": {
        "0000:00": (
            0,
            f"00.0 01.0 01.1 02.0 {DMA} 11.0 16.0 16.1 1a.0 1c.0 1d.0 1e.0 1f.0 1f.2 1f.3",
        ),
        "0000:02": (0, "00.0 00.3"),
        "0000:04": (0, "00.0"),
        "0000:05": (0, "00.0"),
        "0000:7f": (None, UNCORE),
        "0000:80": (1, f"02.0 02.2 03.0 {DMA}"),
        "0000:82": (1, "00.0"),
        "0000:83": (1, "00.0"),
        "0000:ff": (None, UNCORE),
    },
    "40intel64-pcilocality": {
        "0000:00": (
            None,
            f"00.0 03.0 05.0 06.0 07.0 08.0 09.0 0a.0 14.0 14.1 14.2 {USB} 1e.0 1f.0 1f.2",
        ),
        "0000:01": (None, "00.0"),
        "0000:02": (None, "00.0 00.1"),
        "0000:03": (None, "00.0 00.1"),
        "0000:09": (None, "03.0"),
        "0000:40": (None, "01.0 03.0 05.0 07.0 09.0 14.0 14.1 14.2"),
        "0000:43": (2, "00.0"),
    },
    "48amd64-sparse": {},
    "dgx-gb10": {},
    "fakepcilocalities": {
        "0000:00": (0, "00.0 03.0 05.0 06.0 14.0 1e.0 1f.0 1f.2"),
        "0000:01": (0, "00.0"),
        "0000:02": (0, "00.0 00.1"),
        "0000:03": (0, "00.0 00.1"),
        "0000:09": (0, "03.0"),
        "0000:40": (1, "01.0 03.0 14.0"),
        "0000:43": (1, "00.0"),
        "0000:80": (2, SMALL_ROOT),
        "0000:c0": (3, SMALL_ROOT),
    },
    "nvidiagpunumanodes": {
        "0004:05": (0, "00.0"),
        "0004:06": (0, "00.0"),
        "0006:00": (0, "00.0"),
        "0007:00": (8, "00.0"),
        "0035:04": (8, "00.0"),
        "0035:05": (8, "00.0"),
    },
    "pci-conflicts": {"0000:00": (None, "00.0 03.0"), "0000:01": (None, "00.0")},
}
"""Capture → bus → NUMA node, functions.

Differences from hwloc:

- `32em64t-2ib` 00:11.0 is a bridge without a bus behind it (secondary bus 0), which hwloc drops.
- `40intel64-pcilocality` and `fakepcilocalities` are run with HWLOC_PCI_LOCALITY, which forces
  nodes that are in none of the files: there buses 80 and c0 both go to node 3, and in the other
  buses 00 to 09 to nodes 0 and 2. Here stands what the files say: -1 and all CPUs, so unknown.
"""

IDS = {
    "32em64t-2ib": {
        "0000:00:01.0": "060400 8086:3c02",
        "0000:04:00.0": "060400 1a03:1150 0000:0000",
        "0000:05:00.0": "030000 1a03:2000 1028:0518",
        "0000:00:02.0": "010802 8086:0953 8086:3709",
        "0000:82:00.0": "028000 15b3:1003 15b3:0059",
        "0000:83:00.0": "0b4000 8086:225c 8086:2500",
    },
    "40intel64-pcilocality": {
        "0000:01:00.0": "010400 1000:0079 1028:1f17",
        "0000:43:00.0": "0c0600 1077:7322 1077:7322",
    },
    "pci-conflicts": {"0000:00:03.0": "060400 8086:340a", "0000:01:00.0": "010400 1000:0079"},
}
HCAS: Mapping[str, Mapping[str, tuple[str | None, int | None]]] = {
    "32em64t-2ib": {"mlx4_0": ("0000:82:00.0", 1), "scif0": (None, None)},
    "40intel64-pcilocality": {"qib0": ("0000:43:00.0", 2)},
    "fakepcilocalities": {"qib0": ("0000:43:00.0", 1)},
}
"""hwloc hides scif0: it is the Xeon Phi's own transport, under no PCI function."""

PACKAGES = {
    "32em64t-2ib": {0: "0-7", 1: "8-15"},
    "40intel64-pcilocality": FOUR_SOCKETS,
    "48amd64-sparse": {0: "0-11", 1: "12-23", 2: "24-35", 3: "36-47"},
    "dgx-gb10": {36: "0-19"},
    "fakepcilocalities": FOUR_SOCKETS,
    "nvidiagpunumanodes": {0: "0-15", 8: "88-103"},
    "pci-conflicts": FOUR_SOCKETS,
}
"""hwloc drops package 3 of `pci-conflicts`: its authors broke a mask of one CPU, and left the
list, which we read, as it was."""

CORES = {
    "32em64t-2ib": 16,
    "40intel64-pcilocality": 40,
    "48amd64-sparse": 48,
    "dgx-gb10": 20,
    "fakepcilocalities": 40,
    "nvidiagpunumanodes": 8,
    "pci-conflicts": 40,
}
CACHES = {
    "32em64t-2ib": ("0-7", "8-15"),
    "40intel64-pcilocality": tuple(FOUR_SOCKETS.values()),
    "dgx-gb10": ("0-9", "10-19"),
    "fakepcilocalities": (),
    "nvidiagpunumanodes": ("0-7", "8-15", "88-95", "96-103"),
}
MAKES = {
    "32em64t-2ib": "Intel(R) Xeon(R) CPU E5-2680 0 @ 2.70GHz",
    "40intel64-pcilocality": "Intel(R) Xeon(R) CPU E7- 4870  @ 2.40GHz",
    "48amd64-sparse": "AMD Engineering Sample",
    "dgx-gb10": "Cortex-A725 + Cortex-X925",
    "nvidiagpunumanodes": "POWER9, altivec supported",
}
