"""The kubelet: configuration, state files, metrics and PodResources."""
