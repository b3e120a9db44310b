//go:build tools

// Package rdmashared pins the RDMA shared device plugin, which the nightly run puts beside ours.
// Nothing imports it.
package rdmashared

import _ "github.com/Mellanox/k8s-rdma-shared-dev-plugin/cmd/k8s-rdma-shared-dp"
