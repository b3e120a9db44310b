//go:build k137

// How Kubernetes 1.37 makes the two controllers.
package main

import (
	core "k8s.io/client-go/informers/core/v1"
	resource "k8s.io/client-go/informers/resource/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/devicetainteviction"
	"k8s.io/kubernetes/pkg/controller/resourceclaim"
)

func newClaims(logger klog.Logger, client kubernetes.Interface, pods core.PodInformer, all resource.Interface) (*resourceclaim.Controller, error) {
	return resourceclaim.NewController(
		logger,
		client, pods, nil, all.ResourceClaims(), all.ResourceClaimTemplates(),
	)
}

// newTaints needs the rules: their gate is on by default, and the controller reads them without
// asking whether it has any.
func newTaints(client kubernetes.Interface, pods core.PodInformer, all resource.Interface) *devicetainteviction.Controller {
	return devicetainteviction.New(
		client, pods, all.ResourceClaims(), all.ResourceSlices(), all.DeviceTaintRules(),
		all.DeviceClasses(), "device-taint-eviction",
	)
}
