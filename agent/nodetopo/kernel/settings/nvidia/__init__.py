"""The settings of NVIDIA's device plugin, under NVIDIA's names.

Source of every name and rule: k8s-device-plugin v0.19.0, ``cmd/nvidia-device-plugin/main.go``,
``cmd/gpu-feature-discovery/main.go`` and ``api/config/v1``; what v0.20.0 added is marked.
"""
