package main

import (
	"net"
	"os"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"

	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// serve answers the PodResources API at path, as the kubelet does from these managers.
func (n *node) serve(path string) (func(), error) {
	os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	podresourcesapi.RegisterPodResourcesListerServer(server, podresources.NewV1PodResourcesServer(background, podresources.PodResourcesProviders{
		Pods:             listed{n},
		Devices:          given{n.devices},
		Cpus:             noCPUs{},
		Memory:           noMemory{},
		DynamicResources: noClaims{},
	}))
	go server.Serve(listener)
	return server.Stop, nil
}

// listed are the pods that the managers take for active, one under admission included.
type listed struct{ *node }

func (l listed) GetActivePods() []*v1.Pod { return l.pods }
func (l listed) GetPods() []*v1.Pod       { return l.pods }

func (l listed) GetPodByName(namespace, name string) (*v1.Pod, bool) {
	for _, pod := range l.pods {
		if pod.Namespace == namespace && pod.Name == name {
			return pod, true
		}
	}
	return nil, false
}

// given are the devices of the manager; its NUMA nodes are left out.
type given struct{ *devicemanager.ManagerImpl }

func (g given) GetDevices(uid, container string) []*podresourcesapi.ContainerDevices {
	var found []*podresourcesapi.ContainerDevices
	for resource, devices := range g.ManagerImpl.GetDevices(uid, container) {
		for id := range devices {
			found = append(found, &podresourcesapi.ContainerDevices{ResourceName: resource, DeviceIds: []string{id}})
		}
	}
	return found
}

type noCPUs struct{}

func (noCPUs) GetAllocatableCPUs() []int64 { return nil }
func (noCPUs) GetPodCPUs(string) []int64   { return nil }

type noMemory struct{}

type noClaims struct{}
