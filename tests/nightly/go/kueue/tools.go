//go:build tools

// Package kueue pins Kueue, whose manager the nightly proof runs. Nothing imports it.
package kueue

import _ "sigs.k8s.io/kueue/cmd/kueue"
