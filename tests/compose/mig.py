"""GPUs that are partitioned.

Sizes: NVIDIA MIG User Guide, "Supported MIG Profiles": memory, multiprocessors, engines and
profile numbers as `nvidia-smi mig -lgip` prints them.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.model.gpu import Gpu, Mig, MigAttributes, MigInstance, MigPlacement

MAX_INSTANCES = 7
"""MIG devices on one GPU."""


class Profile(Struct, frozen=True):
    """A GPU instance profile whose one compute instance fills it.

    Attributes:
        number: as `nvidia-smi mig -lgip` numbers it.
        slices: memory slices, of 8.
        compute: compute slices, of 7.
        engines: copy, decoder, encoder, JPEG, OFA.
    """

    number: int
    slices: int
    compute: int
    memory_mib: int
    multiprocessors: int
    engines: tuple[int, int, int, int, int]


A100_40: Mapping[str, Profile] = MappingProxyType(
    {
        "1g.5gb": Profile(19, 1, 1, 4864, 14, (1, 0, 0, 0, 0)),
        "2g.10gb": Profile(14, 2, 2, 9856, 28, (2, 1, 0, 0, 0)),
        "3g.20gb": Profile(9, 4, 3, 19968, 42, (3, 2, 0, 0, 0)),
        "4g.20gb": Profile(5, 4, 4, 19968, 56, (4, 2, 0, 0, 0)),
        "7g.40gb": Profile(0, 8, 7, 40192, 98, (7, 5, 0, 1, 1)),
    },
)
H100_80: Mapping[str, Profile] = MappingProxyType(
    {
        "1g.10gb": Profile(19, 1, 1, 9984, 16, (1, 1, 0, 1, 0)),
        "1g.20gb": Profile(15, 2, 1, 20096, 26, (1, 1, 0, 1, 0)),
        "2g.20gb": Profile(14, 2, 2, 20096, 32, (2, 2, 0, 2, 0)),
        "3g.40gb": Profile(9, 4, 3, 40448, 60, (3, 3, 0, 3, 0)),
        "4g.40gb": Profile(5, 4, 4, 40448, 64, (4, 4, 0, 4, 0)),
        "7g.80gb": Profile(0, 8, 7, 81184, 132, (8, 7, 0, 7, 1)),
    },
)


def partitioned(
    gpu: Gpu,
    profiles: Mapping[str, Profile],
    places: Sequence[tuple[str, int]],
    *,
    is_pending: bool = False,
) -> Gpu:
    """Return *gpu* with MIG on, and an instance at each of *places*: profile, first slice.

    Args:
        gpu: not partitioned.
        profiles: what its model offers.
        places: in the order of the instances; may be empty.
        is_pending: whether MIG goes off at the next reset.
    """
    instances = tuple(
        _instance(gpu, name, profiles[name], start, number)
        for number, (name, start) in enumerate(places, 1)
    )
    mig = Mig(
        is_enabled=True,
        is_pending=is_pending,
        max_instances=MAX_INSTANCES,
        instances=instances,
    )
    return replace(gpu, mig=mig)


def _instance(gpu: Gpu, name: str, profile: Profile, start: int, number: int) -> MigInstance:
    copy, decoders, encoders, jpeg, ofa = profile.engines
    assert gpu.uuid is not None
    return MigInstance(
        uuid=f"MIG-{gpu.uuid[4:12]}-0000-5000-8000-{gpu.index:04x}{number:08x}",
        parent_uuid=gpu.uuid,
        profile=name,
        profile_id=profile.number,
        placement=MigPlacement(start=start, size=profile.slices),
        gpu_instance=number,
        compute_instance=0,
        memory_mib=profile.memory_mib,
        attributes=MigAttributes(
            multiprocessors=profile.multiprocessors,
            copy_engines=copy,
            decoders=decoders,
            encoders=encoders,
            jpeg_engines=jpeg,
            ofa_engines=ofa,
            gpu_instance_slices=profile.compute,
            compute_instance_slices=profile.compute,
            memory_mib=profile.memory_mib,
        ),
    )
