package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/utils/cpuset"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// awaitLimit is how long plugins may take to register on a busy machine.
const awaitLimit = 2 * time.Minute

// reconcileAsks is how often the CPU manager asks for pods when it reconciles.
const reconcileAsks = 2

// start wires the managers in the kubelet's order: devices, CPUs, memory. What an error says is
// what such a kubelet would end with.
func start(asked question) (*node, func(), error) {
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(asked.Gates); err != nil {
		return nil, nil, err
	}
	one := &node{}
	var err error
	one.topology, err = newTopologyManager(asked)
	if err != nil {
		return nil, nil, err
	}
	files, err := os.MkdirTemp("", "admission-")
	if err != nil {
		return nil, nil, err
	}
	stop, err := one.fill(asked, files)
	if err != nil {
		return nil, nil, err
	}
	for _, provider := range []topologymanager.HintProvider{one.devices, one.cpus, one.memory} {
		one.topology.AddHintProvider(klog.Background(), provider)
	}
	return one, func() { stop(); os.RemoveAll(files) }, nil
}

// fill makes and starts the three managers that give hints, with their state files in a directory.
func (n *node) fill(asked question, files string) (func(), error) {
	logger := klog.Background()
	store := n.topology.(topologymanager.Store)
	var err error
	if n.devices, err = newDeviceManager(asked, store); err != nil {
		return nil, err
	}
	reservation := v1.ResourceList{
		v1.ResourceCPU:    resource.MustParse(asked.CPU.Amount),
		v1.ResourceMemory: resource.MustParse(asked.Memory.Amount),
	}
	reserved, err := cpuset.Parse(asked.CPU.Reserved)
	if err != nil {
		return nil, err
	}
	n.cpus, err = cpumanager.NewManager(logger, asked.CPU.Policy, asked.CPU.Options, time.Hour, &asked.Machine, reserved, reservation, files, store)
	if err != nil {
		return nil, err
	}
	n.memory, err = memorymanager.NewManager(logger, asked.Memory.Policy, &asked.Machine, reservation, reservations(asked), files, store)
	if err != nil {
		return nil, err
	}
	return n.begin(asked)
}

func (n *node) begin(asked question) (func(), error) {
	logger := klog.Background()
	os.Remove(pluginapi.DevicePluginPath + "kubelet_internal_checkpoint")
	if err := n.devices.Start(logger, n.active, ready{}, containermap.NewContainerMap(), sets.New[string]()); err != nil {
		return nil, err
	}
	stop := func() { n.devices.Stop(logger) }
	if err := n.cpus.Start(background, n.active, ready{}, silent{}, nil, containermap.NewContainerMap()); err != nil {
		stop()
		return nil, err
	}
	if asked.CPU.Policy == string(cpumanager.PolicyStatic) {
		// The CPU manager begins to reconcile on its own, and must not do so while a pod is
		// admitted: it would release what pods have that it has not heard of.
		for n.asked.Load() < reconcileAsks {
			time.Sleep(100 * time.Microsecond)
		}
	}
	if err := n.memory.Start(background, n.active, ready{}, silent{}, nil, containermap.NewContainerMap()); err != nil {
		stop()
		return nil, err
	}
	for name, devices := range asked.Devices {
		if err := plug(n.devices, name, devices); err != nil {
			stop()
			return nil, err
		}
	}
	if err := n.await(asked.Await); err != nil {
		stop()
		return nil, err
	}
	if asked.PodResources == "" {
		return stop, nil
	}
	close, err := n.serve(asked.PodResources)
	if err != nil {
		stop()
		return nil, err
	}
	return func() { close(); stop() }, nil
}

// await returns when plugins have registered with all of their devices.
func (n *node) await(devices map[string]int64) error {
	for deadline := time.Now().Add(awaitLimit); ; time.Sleep(10 * time.Millisecond) {
		missing := ""
		capacity := capacityOf(n.devices)
		for name, count := range devices {
			if amount := capacity[v1.ResourceName(name)]; amount.Value() != count {
				missing = fmt.Sprintf("%s has %d devices, not %d", name, amount.Value(), count)
			}
		}
		if missing == "" {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.New(missing)
		}
	}
}

func reservations(asked question) []kubeletconfig.MemoryReservation {
	var found []kubeletconfig.MemoryReservation
	for id, limits := range asked.Memory.Reserved {
		list := v1.ResourceList{}
		for name, amount := range limits {
			list[v1.ResourceName(name)] = resource.MustParse(amount)
		}
		found = append(found, kubeletconfig.MemoryReservation{NumaNode: id, Limits: list})
	}
	return found
}

// ready says that all sources of pods were heard.
type ready struct{}

func (ready) AddSource(string) {}
func (ready) AllReady() bool   { return true }

// silent knows the status of no pod: nothing is reconciled.
type silent struct{}

func (silent) GetPodStatus(types.UID) (v1.PodStatus, bool) { return v1.PodStatus{}, false }
