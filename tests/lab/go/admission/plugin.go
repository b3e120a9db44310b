package main

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
)

// plug gives the device manager one resource with its devices.
func plug(manager *devicemanager.ManagerImpl, name string, devices []device) error {
	if err := manager.PluginConnected(background, name, inProcess{name: name}); err != nil {
		return err
	}
	list := &pluginapi.ListAndWatchResponse{}
	for _, one := range devices {
		told := &pluginapi.Device{ID: one.ID, Health: pluginapi.Unhealthy}
		if one.Healthy {
			told.Health = pluginapi.Healthy
		}
		if one.Nodes != nil {
			told.Topology = &pluginapi.TopologyInfo{}
		}
		for _, id := range one.Nodes {
			told.Topology.Nodes = append(told.Topology.Nodes, &pluginapi.NUMANode{ID: id})
		}
		list.Devices = append(list.Devices, told)
	}
	manager.PluginListAndWatchReceiver(klog.Background(), name, list)
	return nil
}

// inProcess is a device plugin that prefers the lowest ids.
type inProcess struct {
	pluginapi.DevicePluginClient
	name string
}

func (p inProcess) API() pluginapi.DevicePluginClient { return p }
func (p inProcess) Resource() string                  { return p.name }
func (p inProcess) SocketPath() string                { return "/" + p.name }

func (p inProcess) GetDevicePluginOptions(context.Context, *pluginapi.Empty, ...grpc.CallOption) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

func (p inProcess) GetPreferredAllocation(_ context.Context, asked *pluginapi.PreferredAllocationRequest, _ ...grpc.CallOption) (*pluginapi.PreferredAllocationResponse, error) {
	answer := &pluginapi.PreferredAllocationResponse{}
	for _, one := range asked.ContainerRequests {
		ids := slices.Clone(one.MustIncludeDeviceIDs)
		others := slices.Clone(one.AvailableDeviceIDs)
		slices.Sort(others)
		for _, id := range others {
			if len(ids) < int(one.AllocationSize) && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		answer.ContainerResponses = append(answer.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return answer, nil
}

func (p inProcess) Allocate(_ context.Context, asked *pluginapi.AllocateRequest, _ ...grpc.CallOption) (*pluginapi.AllocateResponse, error) {
	answer := &pluginapi.AllocateResponse{}
	for range asked.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, &pluginapi.ContainerAllocateResponse{})
	}
	return answer, nil
}
