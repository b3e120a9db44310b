//go:build !k137

// What the managers of Kubernetes 1.36 are called with.
package main

import (
	cadvisor "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"

	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
)

type machineInfo = cadvisor.MachineInfo

func newTopologyManager(asked question) (topologymanager.Manager, error) {
	return topologymanager.NewManager(asked.Machine.Topology, asked.Topology.Policy, asked.Topology.Scope, asked.Topology.Options)
}

func newDeviceManager(asked question, store topologymanager.Store) (*devicemanager.ManagerImpl, error) {
	return devicemanager.NewManagerImpl(asked.Machine.Topology, store)
}

func capacityOf(devices *devicemanager.ManagerImpl) v1.ResourceList {
	capacity, _, _ := devices.GetCapacity()
	return capacity
}

func admit(manager topologymanager.Manager, pod *v1.Pod) lifecycle.PodAdmitResult {
	return manager.Admit(&lifecycle.PodAdmitAttributes{Pod: pod})
}

func (given) GetAllocatableDevices() []*podresourcesapi.ContainerDevices { return nil }

func (noCPUs) GetCPUs(string, string) []int64 { return nil }

func (noMemory) GetMemory(string, string) []*podresourcesapi.ContainerMemory { return nil }
func (noMemory) GetAllocatableMemory() []*podresourcesapi.ContainerMemory    { return nil }

func (noClaims) GetDynamicResources(*v1.Pod, *v1.Container) []*podresourcesapi.DynamicResource {
	return nil
}
