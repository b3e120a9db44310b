"""Machines put together from published facts, for `tests/nodes/` and the bundled snapshots.

A machine is described once, as the snapshot that the agent should find on it. From the
description come `nvml.txt` (what the NVML library answers), `sysfs.txt` (its `/sys` and `/proc`)
and `host.txt` (files that only audits read: programs, their configurations, device nodes, state
files of the kubelet); the tests run the whole discovery on them and demand the description back.
What the node answers over the network is added to that (:mod:`tests.compose.answers`): the stored
snapshot is of an idle node of which all is known. All of this follows from the description.

To add a machine, in five steps:

1. Write ``tests/compose/<name>.py`` with a docstring that names the published facts, and a
   function ``machine()``. Its CPUs and memory are a :func:`tests.compose.host.host` of one of
   :mod:`tests.compose.processors`; memory without CPUs (Grace, POWER9) is added by
   :func:`tests.compose.host.with_memory_nodes`.
2. Plug it together with :func:`tests.compose.pci_tree.build`: ``root`` (host bridge) ▸ ``port``
   ▸ ``switch`` ▸ ``leaf``, as deep as it goes. Name the leaves ``gpu0``, ``nic0``, ``storage0`` …
   in the order of their addresses. Bus numbers follow by themselves; give ``bus=`` where real
   ones are known. Paths, bridges, PCI facts and IOMMU groups come from the tree. What is neither
   GPU nor HCA is there all the same: NVSwitches, the BMC's display (``parts.console``).
3. Make its GPUs (:func:`tests.compose.gpus.gpus`), NVLinks (``mesh``, ``fabric`` and ``down`` in
   :mod:`tests.compose.wiring`), pairs (``pairs`` there) and HCAs (:mod:`tests.compose.hcas`:
   ``infiniband``, ``roce``, ``virtual_function``, ``subfunction``, ``efa``, put ``in_order``).
   Partition a GPU with :func:`tests.compose.mig.partitioned`.
4. Put all into :func:`tests.compose.parts.compose`, with a shape
   (``h100x8-nvswitch-2numa-8cx7``), a short name if it is to be bundled, and its sources; what
   differs from a usual driver, kernel or kubelet goes into ``software=`` and ``kubelet=``. List
   the module in :mod:`tests.compose.machines`.
5. Run ``scripts/generate`` and read the diff: ``snapshot.json`` must be the description. Add
   the first row of its matrix to ``test_the_matrix_is_the_one_that_such_machines_print``, from a
   capture if there is one, and what its checks find to
   :mod:`tests.components.audit.test_catalogue_machines`.
"""
