"""CPU models of GPU servers.

Family, model and stepping numbers: kernel arch/x86/include/asm/{intel-family,amd}.h and
published `lscpu` outputs; caches: Intel ARK, AMD EPYC data sheets, NVIDIA Grace tuning guide,
IBM POWER9 user manual. Grace is one cache of 114 MiB a socket, as its kernel says.
"""

from msgspec.structs import replace

from tests.compose.machine import Processor

INTEL, AMD = "GenuineIntel", "AuthenticAMD"

XEON_E5_2698V4 = Processor(
    vendor=INTEL,
    model="Intel(R) Xeon(R) CPU E5-2698 v4 @ 2.20GHz",
    family=6,
    model_number=79,
    stepping=1,
    mhz=2200,
    cores=20,
    threads=2,
    l1d_kib=32,
    l1i_kib=32,
    l2_kib=256,
    l3_kib=51200,
    cores_per_l3=20,
)
XEON_8168 = replace(
    XEON_E5_2698V4,
    model="Intel(R) Xeon(R) Platinum 8168 CPU @ 2.70GHz",
    model_number=85,
    stepping=4,
    mhz=2700,
    cores=24,
    l2_kib=1024,
    l3_kib=33792,
    cores_per_l3=24,
)
XEON_8480C = Processor(
    vendor=INTEL,
    model="Intel(R) Xeon(R) Platinum 8480C",
    family=6,
    model_number=143,
    stepping=8,
    mhz=2000,
    cores=56,
    threads=2,
    l1d_kib=48,
    l1i_kib=32,
    l2_kib=2048,
    l3_kib=107520,
    cores_per_l3=56,
)
XEON_8470 = replace(XEON_8480C, model="Intel(R) Xeon(R) Platinum 8470", cores=52, cores_per_l3=52)
XEON_6448Y = replace(
    XEON_8480C,
    model="Intel(R) Xeon(R) Gold 6448Y",
    mhz=2100,
    cores=32,
    l3_kib=61440,
    cores_per_l3=32,
)
XEON_8558 = replace(
    XEON_8480C,
    model="INTEL(R) XEON(R) PLATINUM 8558",
    model_number=207,
    stepping=2,
    mhz=2100,
    cores=48,
    l3_kib=266240,
    cores_per_l3=48,
)
XEON_8570 = replace(
    XEON_8558, model="INTEL(R) XEON(R) PLATINUM 8570", cores=56, l3_kib=307200, cores_per_l3=56
)
EPYC_7742 = Processor(
    vendor=AMD,
    model="AMD EPYC 7742 64-Core Processor",
    family=23,
    model_number=49,
    mhz=2250,
    cores=64,
    threads=2,
    l1d_kib=32,
    l1i_kib=32,
    l2_kib=512,
    l3_kib=16384,
    cores_per_l3=4,
)
EPYC_7543P = replace(
    EPYC_7742,
    model="AMD EPYC 7543P 32-Core Processor",
    family=25,
    model_number=1,
    stepping=1,
    mhz=2800,
    cores=32,
    l3_kib=32768,
    cores_per_l3=4,
)
"""Eight chiplets of four cores each share 32 MiB (AMD EPYC 7003 data sheet: 256 MiB)."""

EPYC_9654 = replace(
    EPYC_7742,
    model="AMD EPYC 9654 96-Core Processor",
    family=25,
    model_number=17,
    stepping=1,
    mhz=2400,
    cores=96,
    l2_kib=1024,
    l3_kib=32768,
    cores_per_l3=8,
)
EPYC_9575F = replace(
    EPYC_9654,
    model="AMD EPYC 9575F 64-Core Processor",
    family=26,
    model_number=2,
    mhz=3300,
    cores=64,
    l1d_kib=48,
)
"""Turin."""

GRACE = Processor(
    vendor="ARM",
    model="Neoverse-V2",
    mhz=3447,
    machine="aarch64",
    cores=72,
    threads=1,
    l1d_kib=64,
    l1i_kib=64,
    l2_kib=1024,
    l3_kib=116736,
    cores_per_l3=72,
    hugepages_kib=(2048, 524288, 16777216),
    part=(0x41, 0xD4F),
)
"""With pages of 64 KiB, as NVIDIA's kernel for it has."""

POWER9 = Processor(
    vendor=None,
    model="POWER9, altivec supported",
    mhz=3800,
    machine="ppc64le",
    cores=20,
    threads=4,
    l1d_kib=32,
    l1i_kib=32,
    l2_kib=512,
    l3_kib=10240,
    cores_per_l3=2,
    are_threads_adjacent=True,
    hugepages_kib=(2048, 1048576),
)
