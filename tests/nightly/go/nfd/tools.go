//go:build tools

// Package nfd pins Node Feature Discovery, whose programs the nightly proof runs.
// Nothing imports it.
package nfd

import (
	_ "sigs.k8s.io/node-feature-discovery/cmd/nfd-gc"
	_ "sigs.k8s.io/node-feature-discovery/cmd/nfd-master"
	_ "sigs.k8s.io/node-feature-discovery/cmd/nfd-worker"
)
