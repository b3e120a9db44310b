//go:build tools

// Package schedulerplugins pins the scheduler with NodeResourceTopologyMatch, which the nightly proof
// runs. Nothing imports it.
package schedulerplugins

import _ "sigs.k8s.io/scheduler-plugins/cmd/scheduler"
