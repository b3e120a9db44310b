//go:build k137

// What the managers of Kubernetes 1.37 are called with.
package main

import (
	cadvisor "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"

	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
)

type machineInfo = cadvisor.MachineInfo

func newTopologyManager(asked question) (topologymanager.Manager, error) {
	return topologymanager.NewManager(klog.Background(), asked.Machine.Topology, asked.Topology.Policy, asked.Topology.Scope, asked.Topology.Options)
}

func newDeviceManager(asked question, store topologymanager.Store) (*devicemanager.ManagerImpl, error) {
	return devicemanager.NewManagerImpl(klog.Background(), asked.Machine.Topology, store)
}

func capacityOf(devices *devicemanager.ManagerImpl) v1.ResourceList {
	capacity, _, _ := devices.GetCapacity(klog.Background())
	return capacity
}

// admit names the operation: the managers do nothing on any other one, resizing among them.
func admit(manager topologymanager.Manager, pod *v1.Pod) lifecycle.PodAdmitResult {
	return manager.Admit(background, &lifecycle.PodAdmitAttributes{Pod: pod, Operation: lifecycle.AddOperation})
}

func (given) GetAllocatableDevices(klog.Logger) []*podresourcesapi.ContainerDevices { return nil }

func (noCPUs) GetCPUs(*v1.Pod, *v1.Container) []int64 { return nil }

func (noMemory) GetMemory(klog.Logger, *v1.Pod, *v1.Container) []*podresourcesapi.ContainerMemory {
	return nil
}

func (noMemory) GetPodMemory(klog.Logger, string) []*podresourcesapi.ContainerMemory { return nil }

func (noMemory) GetAllocatableMemory(klog.Logger) []*podresourcesapi.ContainerMemory { return nil }

func (noClaims) GetDynamicResources(klog.Logger, *v1.Pod, *v1.Container) []*podresourcesapi.DynamicResource {
	return nil
}
