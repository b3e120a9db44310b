"""The kubelet's managers, reproduced: whether a pod is admitted, with what, and why not."""
