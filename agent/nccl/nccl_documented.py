"""NCCL's documented environment variables, as its User Guide divides them.

Read out of NVIDIA/nccl: ``docs/userguide/source/env.rst`` of v2.30.7-1 says which part of the
guide a variable stands in; the sources of the releases v2.3.5-5 to v2.30.7-1 say which of them
read it. Names are without ``NCCL_``.
"""

Releases = tuple[str, str | None, str]
"""First and last release that reads the variables, and the variables.

The first is the oldest one published as source, 2.3.5, for all that are older; the last is
``None`` for those that 2.30.7 still reads. Older still are two that the guide dates itself.
"""

CONFIGURATION: tuple[Releases, ...] = (
    (
        "2.3.5",
        None,
        (
            "DEBUG DEBUG_FILE DEBUG_SUBSYS IB_GID_INDEX IB_HCA IB_RETRY_CNT IB_SL "
            "IB_TC IB_TIMEOUT SOCKET_FAMILY SOCKET_IFNAME"
        ),
    ),
    ("2.4.6", None, "IGNORE_CPU_AFFINITY"),
    ("2.4.8", None, "NSOCKS_PERTHREAD SOCKET_NTHREADS"),
    ("2.5.6", None, "CROSS_NIC"),
    ("2.6.4", None, "COLLNET_ENABLE TOPO_DUMP_FILE TOPO_FILE"),
    ("2.9.9", None, "COLLNET_NODE_THRESHOLD"),
    ("2.10.3", None, "NET"),
    ("2.11.4", None, "NET_PLUGIN"),
    ("2.12.7", None, "SET_THREAD_NAME"),
    ("2.19.1", None, "TUNER_PLUGIN"),
    ("2.21.5", None, "IB_ADDR_FAMILY IB_ADDR_RANGE IB_ROCE_VERSION_NUM"),
    ("2.22.3", None, "IB_FIFO_TC"),
    (
        "2.23.4",
        None,
        (
            "CONF_FILE IB_RETURN_ASYNC_EVENTS OOB_NET_ENABLE OOB_NET_IFNAME "
            "PROFILER_PLUGIN UID_STAGGER_RATE UID_STAGGER_THRESHOLD"
        ),
    ),
    ("2.24.3", None, "SOCKET_RETRY_CNT SOCKET_RETRY_SLEEP_MSEC"),
    ("2.26.2", None, "DEBUG_TIMESTAMP_FORMAT DEBUG_TIMESTAMP_LEVELS"),
    ("2.27.3", None, "CTA_POLICY"),
    ("2.28.3", None, "NETDEVS_POLICY"),
    ("2.28.7", None, "ENV_PLUGIN"),
    ("2.29.2", None, "SOCKET_POLL_TIMEOUT_MSEC"),
    ("2.30.3", None, "MULTI_RANK_GPU_ENABLE"),
    ("2.30.7", None, "SOCKET_MAGIC"),
)
"""Those of the part "System configuration": for good."""

DEBUGGING: tuple[Releases, ...] = (
    ("2.0.5", "2.2.12", "CHECKS_DISABLE"),
    ("2.1", "2.2", "SINGLE_RING_THRESHOLD"),
    ("2.3.5", "2.3.7", "IB_CUDA_SUPPORT"),
    ("2.3.5", "2.4.8", "LL_THRESHOLD"),
    (
        "2.3.5",
        None,
        (
            "BUFFSIZE CHECK_POINTERS IB_DISABLE LAUNCH_MODE NET_GDR_READ NTHREADS "
            "P2P_DISABLE P2P_LEVEL SHM_DISABLE"
        ),
    ),
    ("2.4.2", "2.4.8", "TREE_THRESHOLD"),
    ("2.4.2", None, "NET_GDR_LEVEL"),
    ("2.5.6", None, "ALGO MAX_NCHANNELS MIN_NCHANNELS PROTO"),
    ("2.6.4", None, "IB_AR_THRESHOLD"),
    ("2.8.3", None, "NET_SHARED_BUFFERS"),
    ("2.9.6", None, "SET_STACK_SIZE"),
    ("2.9.9", None, "NVB_DISABLE"),
    ("2.10.3", None, "IB_QPS_PER_CONNECTION"),
    ("2.11.4", None, "GRAPH_REGISTER"),
    ("2.12.7", None, "IB_PCI_RELAXED_ORDERING NET_SHARED_COMMS P2P_PXN_LEVEL PXN_DISABLE"),
    ("2.12.12", None, "P2P_DIRECT_DISABLE"),
    ("2.13.4", None, "DMABUF_ENABLE GRAPH_MIXING_SUPPORT"),
    (
        "2.14.3",
        None,
        "ALLOC_P2P_NET_LL_BUFFERS COMM_BLOCKING P2P_LL_THRESHOLD P2P_NET_CHUNKSIZE",
    ),
    ("2.15.1", None, "CGA_CLUSTER_SIZE"),
    ("2.16.2", None, "IB_ADAPTIVE_ROUTING MEM_SYNC_DOMAIN"),
    ("2.17.1", None, "MAX_CTAS MIN_CTAS NVLS_ENABLE"),
    ("2.18.1", None, "CUMEM_ENABLE IB_SPLIT_DATA_ON_QPS"),
    ("2.19.1", None, "LOCAL_REGISTER"),
    ("2.20.3", None, "IB_MERGE_NICS"),
    ("2.21.5", None, "MNNVL_ENABLE"),
    ("2.22.3", None, "RUNTIME_CONNECT"),
    ("2.23.4", None, "CUMEM_HOST_ENABLE IB_ECE_ENABLE MNNVL_CLIQUE_ID"),
    ("2.24.3", None, "LEGACY_CUDA_REGISTER RAS_ADDR RAS_ENABLE RAS_TIMEOUT_FACTOR"),
    ("2.25.1", None, "MNNVL_UUID"),
    ("2.26.2", None, "LAUNCH_ORDER_IMPLICIT LAUNCH_RACE_FATAL NET_GDR_C2C"),
    ("2.27.3", None, "PXN_C2C WIN_ENABLE"),
    ("2.29.2", None, "IPC_USE_ABSTRACT_SOCKET"),
    ("2.29.7", None, "CHECK_MODE SYM_GIN_KERNELS_ENABLE"),
    ("2.30.3", None, "IB_OOO_RQ IGNORE_COLLNET_MISMATCH IGNORE_NET_MISMATCH"),
    ("2.30.7", None, "GRAPH_STREAM_ORDERING NET_MERGE_POLICY"),
)
"""Those of the part "Debugging": not to be left set in production, as the guide says."""
