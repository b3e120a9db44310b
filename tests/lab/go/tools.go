//go:build tools

// Package lab pins the Kubernetes programs that the lab runs; nothing imports it.
package lab

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
