// Command admission asks the kubelet's own managers what becomes of pods on made-up machines.
//
// It reads one case a line from stdin, JSON, and writes one outcome a line to stdout. Topology,
// device, CPU and memory managers are Kubernetes' own code, wired as the kubelet wires them;
// machine, pods and the device plugin are data. The device manager's directory is compiled in,
// so that this must run where /var/lib/kubelet is its own (tests/lab/namespace.py).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
)

// node is one kubelet's managers, and the pods that it takes for active.
type node struct {
	topology topologymanager.Manager
	devices  *devicemanager.ManagerImpl
	cpus     cpumanager.Manager
	memory   memorymanager.Manager
	pods     []*v1.Pod
	asked    atomic.Int32
}

func main() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	lines := bufio.NewReader(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		var asked question
		if err := json.Unmarshal(line, &asked); err != nil {
			log.Fatal(err)
		}
		if err := answers.Encode(answer(asked)); err != nil {
			log.Fatal(err)
		}
	}
}

// answer plays one case; a panic of the kubelet's code is an outcome too.
func answer(asked question) (out outcome) {
	defer func() {
		if found := recover(); found != nil {
			out.Panic = fmt.Sprint(found)
		}
	}()
	one, stop, err := start(asked)
	if err != nil {
		return outcome{Refusal: err.Error()}
	}
	defer stop()
	out.States = append(out.States, one.state())
	for _, step := range asked.Steps {
		out.Verdicts = append(out.Verdicts, one.play(step))
		out.States = append(out.States, one.state())
	}
	return out
}

// play admits a pod, or forgets one as the kubelet does when its last container ended.
func (n *node) play(todo step) verdict {
	if todo.Admit == nil {
		kept := n.pods[:0]
		for _, pod := range n.pods {
			if string(pod.UID) != todo.Remove {
				kept = append(kept, pod)
			}
		}
		n.pods = kept
		return verdict{Admit: true}
	}
	n.pods = append(n.pods, todo.Admit)
	result := admit(n.topology, todo.Admit)
	if !result.Admit {
		n.pods = n.pods[:len(n.pods)-1]
	}
	return verdict{Admit: result.Admit, Reason: result.Reason, Message: result.Message}
}

// active counts how often the managers ask for the pods.
func (n *node) active() []*v1.Pod {
	n.asked.Add(1)
	return n.pods
}

func (n *node) state() state {
	found := state{
		Shared:  n.cpus.State().GetDefaultCPUSet().String(),
		CPUs:    map[string]map[string]string{},
		Memory:  n.memory.State().GetMemoryAssignments(),
		Nodes:   n.memory.State().GetMachineState(),
		Devices: map[string]map[string]map[string][]string{},
	}
	for uid, containers := range n.cpus.State().GetCPUAssignments() {
		found.CPUs[uid] = map[string]string{}
		for name, cpus := range containers {
			found.CPUs[uid][name] = cpus.String()
		}
	}
	for _, pod := range n.pods {
		found.Devices[string(pod.UID)] = n.held(pod)
	}
	return found
}

func (n *node) held(pod *v1.Pod) map[string]map[string][]string {
	held := map[string]map[string][]string{}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, container := range list {
			held[container.Name] = map[string][]string{}
			for resource, devices := range n.devices.GetDevices(string(pod.UID), container.Name) {
				for id := range devices {
					held[container.Name][resource] = append(held[container.Name][resource], id)
				}
			}
		}
	}
	return held
}

var background = context.Background()
