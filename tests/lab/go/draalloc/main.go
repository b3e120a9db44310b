// Command draalloc is the allocator of kube-scheduler for devices, by itself.
//
// It reads one JSON object a line from stdin and answers each with one line. What was allocated
// stays allocated until it is freed, as in a cluster:
//
//	{"do": "publish", "slices": [ResourceSlice, …]}      replaces all slices
//	{"do": "classes", "classes": [DeviceClass, …]}       replaces all classes
//	{"do": "allocate", "node": "n", "claim": ResourceClaim}
//	{"do": "free", "name": "of the claim"}
//
// The answer to allocate is {"results": [{"request", "driver", "pool", "device"}, …]}, without
// results where no devices fit; an error of the allocator is {"error": "…"}.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// The largest line; a node's slices are some 100 KB.
const maxLine = 64 << 20

type order struct {
	Do      string                       `json:"do"`
	Slices  []*resourceapi.ResourceSlice `json:"slices"`
	Classes []*resourceapi.DeviceClass   `json:"classes"`
	Node    string                       `json:"node"`
	Claim   *resourceapi.ResourceClaim   `json:"claim"`
	Name    string                       `json:"name"`
}

type result struct {
	Request string `json:"request"`
	Driver  string `json:"driver"`
	Pool    string `json:"pool"`
	Device  string `json:"device"`
}

type answer struct {
	Results []result `json:"results,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// cluster is what the allocator knows besides the claim.
type cluster struct {
	slices  []*resourceapi.ResourceSlice
	classes classes
	claims  map[string][]result
	cache   *cel.Cache
}

type classes map[string]*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	all := []*resourceapi.DeviceClass{}
	for _, class := range c {
		all = append(all, class)
	}
	return all, nil
}

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if class, ok := c[name]; ok {
		return class, nil
	}
	return nil, fmt.Errorf("no class %s", name)
}

// features are those that kube-scheduler 1.36 has unless told otherwise (pkg/features).
var features = structured.Features{
	AdminAccess:            true,
	ConsumableCapacity:     true,
	DeviceBindingAndStatus: true,
	DeviceTaints:           true,
	PartitionableDevices:   true,
	PrioritizedList:        true,
}

func (c *cluster) allocate(node string, claim *resourceapi.ResourceClaim) ([]result, error) {
	allocated := sets.New[structured.DeviceID]()
	for _, results := range c.claims {
		for _, one := range results {
			allocated.Insert(structured.MakeDeviceID(one.Driver, one.Pool, one.Device))
		}
	}
	state := structured.AllocatedState{
		AllocatedDevices:         allocated,
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	allocator, err := structured.NewAllocator(context.Background(), features, state, c.classes, c.slices, c.cache)
	if err != nil {
		return nil, err
	}
	where := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{"kubernetes.io/hostname": node}}}
	found, err := allocator.Allocate(context.Background(), where, []*resourceapi.ResourceClaim{claim})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	results := []result{}
	for _, one := range found[0].Devices.Results {
		results = append(results, result{one.Request, one.Driver, one.Pool, one.Device})
	}
	c.claims[claim.Name] = results
	return results, nil
}

func (c *cluster) obey(asked order) (answer, error) {
	switch asked.Do {
	case "publish":
		c.slices = asked.Slices
	case "classes":
		c.classes = classes{}
		for _, class := range asked.Classes {
			c.classes[class.Name] = class
		}
	case "allocate":
		results, err := c.allocate(asked.Node, asked.Claim)
		return answer{Results: results}, err
	case "free":
		delete(c.claims, asked.Name)
	default:
		return answer{}, fmt.Errorf("unknown order %q", asked.Do)
	}
	return answer{}, nil
}

func main() {
	known := &cluster{
		classes: classes{},
		claims:  map[string][]result{},
		cache:   cel.NewCache(100, cel.Features{EnableConsumableCapacity: true}),
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), maxLine)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked order
		var given answer
		err := json.Unmarshal(lines.Bytes(), &asked)
		if err == nil {
			given, err = known.obey(asked)
		}
		if err != nil {
			given = answer{Error: err.Error()}
		}
		if err := answers.Encode(given); err != nil {
			log.Fatalf("draalloc: %v", err)
		}
	}
	if err := lines.Err(); err != nil {
		log.Fatalf("draalloc: %v", err)
	}
}
