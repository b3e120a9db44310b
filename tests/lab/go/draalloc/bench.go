package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"time"

	resourceapi "k8s.io/api/resource/v1"
)

// placeholder stands in the slices of a bench for the name of each node.
const placeholder = "NODE"

// stride spreads the filtered nodes over all of them; a prime, so that none comes twice.
const stride = 7919

// figures are what one bench took of the process, all threads and the collection of garbage:
//
//	{"do": "bench", "slices": [ResourceSlice with "NODE" for its node, …], "nodes": 100,
//	 "claim": ResourceClaim, "pods": 2, "per_pod": 8}
//
// asks for two pods on a hundred nodes that are alike and empty, for each of which eight nodes are
// filtered. Slices without the placeholder are there once. Classes are those of the last order.
type figures struct {
	Slices       int     `json:"slices"`
	ConstructCPU float64 `json:"construct_cpu_s"` // of one allocator: once a pod
	FilterCPU    float64 `json:"filter_cpu_s"`    // of one node: up to all nodes a pod
	Filtered     int     `json:"filtered"`
	Fitting      int     `json:"fitting"`
}

func (c *cluster) bench(asked order) (*figures, error) {
	if asked.Nodes < 1 || asked.Pods < 1 || asked.PerPod < 1 || asked.Claim == nil {
		return nil, fmt.Errorf("a bench needs nodes, pods, per_pod and a claim")
	}
	slices, err := multiply(asked.Slices, asked.Nodes)
	if err != nil {
		return nil, err
	}
	found := &figures{Slices: len(slices), Filtered: asked.Pods * asked.PerPod}
	claims := []*resourceapi.ResourceClaim{asked.Claim}
	runtime.GC() // what decoding left behind is not the allocator's
	var construct, filter time.Duration
	for pod := range asked.Pods {
		began := cpu()
		allocator, err := c.allocator(slices)
		if err != nil {
			return nil, err
		}
		constructed := cpu()
		for k := range asked.PerPod {
			allocated, err := allocator.Allocate(background, nodeOf(nameOf((k*stride+pod)%asked.Nodes)), claims)
			if err != nil {
				return nil, err
			}
			if len(allocated) > 0 {
				found.Fitting++
			}
		}
		construct += constructed - began
		filter += cpu() - constructed
	}
	found.ConstructCPU = construct.Seconds() / float64(asked.Pods)
	found.FilterCPU = filter.Seconds() / float64(found.Filtered)
	return found, nil
}

func multiply(texts []json.RawMessage, nodes int) ([]*resourceapi.ResourceSlice, error) {
	all := []json.RawMessage{}
	for _, text := range texts {
		if !strings.Contains(string(text), placeholder) {
			all = append(all, text)
			continue
		}
		for node := range nodes {
			all = append(all, json.RawMessage(strings.ReplaceAll(string(text), placeholder, nameOf(node))))
		}
	}
	return decode(all)
}

func nameOf(node int) string {
	return fmt.Sprintf("n%05d", node)
}

// cpu is what this process has used until now.
func cpu() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err) // it cannot fail for the process that asks
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
