"""XXH64, against what the Go library answers that computes pods' fingerprints elsewhere."""

import pytest

from nodetopo.components.zones.node_resource_topology import xxh64

TEXT = "0123456789abcdefghijklmnopqrstuvwxyz-" * 4
SEED = 0x9E3779B185EBCA87

# ChecksumString64S of github.com/OneOfOne/xxhash v1.2.8 on the first bytes of TEXT.
ANSWERS = [
    (0, 0xEF46DB3751D8E999, 0x6EC6D05F61C7E7A7),
    (1, 0x633457081244AFEC, 0x3AD17F565B4E869B),
    (3, 0x1C2DCB4B9024D73D, 0x0EC35779EDC852A8),
    (4, 0x4C33072B45647DCB, 0xD9B7E82E28FE214A),
    (7, 0x97EE4FE4A0FF4DFA, 0x3C8DAE376F2981D5),
    (8, 0xE4BA22A49AD89D3F, 0x7943AD394456C013),
    (11, 0xD9DC70D959571DB7, 0x706D57725E814B7A),
    (12, 0x862E292326B8A4FC, 0x2DD160E9F85C54F8),
    (31, 0x80ADFC1D42020F39, 0xB274D65E91E5F870),
    (32, 0xBF7C9DBE16B5C6E2, 0xE9E6C7F29A5BC5BE),
    (33, 0xE97423E605E2F3B4, 0xCA0627132F7F0D6E),
    (63, 0x808A3E1C9B01CBF1, 0xF1EFCBD469625D67),
    (64, 0xA3E4CD52031884FA, 0x44A0202668616C98),
    (100, 0x08776AAFBE1D8934, 0x3195DE7908DD4B0C),
]


@pytest.mark.parametrize(("length", "plain", "seeded"), ANSWERS)
def test_it_answers_as_the_go_library_does(length: int, plain: int, seeded: int) -> None:
    data = TEXT[:length].encode()
    assert (xxh64(data), xxh64(data, SEED)) == (plain, seeded)
