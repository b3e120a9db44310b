"""Rules about pods: resources, isolation, RDMA and NCCL settings."""
