//go:build tools

// Package nvidia pins NVIDIA's device plugin with GPU Feature Discovery, which the lab runs.
// Nothing imports it.
package nvidia

import (
	_ "github.com/NVIDIA/k8s-device-plugin/cmd/gpu-feature-discovery"
	_ "github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin"
)
