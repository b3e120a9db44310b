"""The part of a node's topology that is valid for NCCL in any container: the PCI tree alone.

A container sees some of the node's GPUs, renumbered from 0, and perhaps none of its HCAs. NCCL
(2.30.7, src/graph) keeps what the file contains and adds the rest itself:

* it drops branches without a GPU or HCA that the container uses (xml.cc, ncclTopoTrimXmlRec),
  so the whole node's tree does for any part of it;
* it takes the number of a ``gpu`` element for NVML's number in the container (xml.cc,
  ncclTopoGetXmlFromGpu), and looks up there whether two GPUs reach each other (paths.cc,
  ncclTopoCheckP2p): with the node's numbers it would ask about other GPUs, so there is none;
* it finds GPUs, NVLinks and HCAs well without the file (NCCL issue 1843), so there are none.
"""

from msgspec.structs import replace

from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.xml import is_function, is_in_use, topology_xml

FILE_NAME = "virtualTopology.xml"
"""NCCL's default name (src/graph/topo.cc)."""


def container_xml(snapshot: Snapshot) -> str:
    """Return the PCI tree of *snapshot* with its links and NUMA nodes, for any container.

    Devices of unknown place are left out: NCCL detects those itself.

    Raises:
        UnreadableError: no place is known at all, or the file would be beyond what NCCL reads.
    """
    placed = tuple(gpu for gpu in snapshot.gpus if gpu.path is not None and gpu.pci is not None)
    hcas = tuple(
        replace(hca, name=str(hca.pci), ports=(), sys_image_guid=None)
        for hca in snapshot.hcas or ()
        if is_in_use(hca) and is_function(hca) and hca.path is not None
    )
    directs = tuple(
        replace(direct, hcas=())
        for direct in snapshot.data_directs or ()
        if direct.path is not None and direct.pci is not None
    )
    # Without NVLinks the writer leaves out the ``gpu`` elements.
    return topology_xml(
        replace(snapshot, gpus=placed, hcas=hcas, data_directs=directs, nvlinks=None)
    )
