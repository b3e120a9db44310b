//go:build tools

// Package nvidia pins NVIDIA's device plugin, which the lab runs; nothing imports it.
package nvidia

import _ "github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin"
