package main

import (
	v1 "k8s.io/api/core/v1"
	memory "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
)

// question is one case: a machine, the kubelet's settings and what happens one after the other.
// Plugins that register by themselves are awaited: resources, each with its number of devices.
type question struct {
	Machine  machineInfo     `json:"machine"`
	Gates    map[string]bool `json:"gates"`
	Topology struct {
		Policy  string            `json:"policy"`
		Scope   string            `json:"scope"`
		Options map[string]string `json:"options"`
	} `json:"topology"`
	CPU struct {
		Policy   string            `json:"policy"`
		Options  map[string]string `json:"options"`
		Reserved string            `json:"reserved"`
		Amount   string            `json:"amount"`
	} `json:"cpu"`
	Memory struct {
		Policy   string                      `json:"policy"`
		Reserved map[int32]map[string]string `json:"reserved"`
		Amount   string                      `json:"amount"`
	} `json:"memory"`
	Devices map[string][]device `json:"devices"`
	Await   map[string]int64    `json:"await"`
	Steps   []step              `json:"steps"`
	// PodResources is the path of the socket to answer at; none if empty.
	PodResources string `json:"podResources"`
}

// device is one of a plugin's; without nodes its plugin tells none.
type device struct {
	ID      string  `json:"id"`
	Nodes   []int64 `json:"nodes"`
	Healthy bool    `json:"healthy"`
}

// step admits a pod, or ends the one of a uid.
type step struct {
	Admit  *v1.Pod `json:"admit,omitempty"`
	Remove string  `json:"remove,omitempty"`
}

// outcome has a verdict for each step, and the managers' state before the first and after each.
type outcome struct {
	Refusal  string    `json:"refusal,omitempty"`
	Panic    string    `json:"panic,omitempty"`
	Verdicts []verdict `json:"verdicts"`
	States   []state   `json:"states"`
}

type verdict struct {
	Admit   bool   `json:"admit"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// state is by uid and container; devices by resource too.
type state struct {
	Shared  string                                    `json:"shared"`
	CPUs    map[string]map[string]string              `json:"cpus"`
	Memory  memory.ContainerMemoryAssignments         `json:"memory"`
	Nodes   memory.NUMANodeMap                        `json:"nodes"`
	Devices map[string]map[string]map[string][]string `json:"devices"`
}
