//go:build tools

// Package kai pins the KAI scheduler and its binder, which the nightly proof runs.
// Nothing imports it.
package kai

import (
	_ "github.com/NVIDIA/KAI-scheduler/cmd/binder"
	_ "github.com/NVIDIA/KAI-scheduler/cmd/scheduler"
)
