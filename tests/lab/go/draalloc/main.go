// Command draalloc is the allocator of kube-scheduler for devices, by itself.
//
// It reads one JSON object a line from stdin and answers each with one line. What was allocated
// stays allocated until it is freed, as in a cluster:
//
//	{"do": "publish", "slices": [ResourceSlice, …]}      replaces all slices
//	{"do": "classes", "classes": [DeviceClass, …]}       replaces all classes
//	{"do": "allocate", "node": "n", "claim": ResourceClaim}
//	{"do": "free", "name": "of the claim"}
//	{"do": "gates", "gates": {"DRAListTypeAttributes": true}}   the other gates have their defaults
//	{"do": "bench", …}                                  as bench.go describes
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
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
)

// The largest line; a node's slices are some 100 KB.
const maxLine = 64 << 20

type order struct {
	Do      string                     `json:"do"`
	Slices  []json.RawMessage          `json:"slices"`
	Classes []*resourceapi.DeviceClass `json:"classes"`
	Node    string                     `json:"node"`
	Claim   *resourceapi.ResourceClaim `json:"claim"`
	Name    string                     `json:"name"`
	Gates   map[string]bool            `json:"gates"`
	Nodes   int                        `json:"nodes"`
	Pods    int                        `json:"pods"`
	PerPod  int                        `json:"per_pod"`
}

type result struct {
	Request string `json:"request"`
	Driver  string `json:"driver"`
	Pool    string `json:"pool"`
	Device  string `json:"device"`
}

type answer struct {
	Results []result `json:"results,omitempty"`
	Bench   *figures `json:"bench,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// cluster is what the allocator knows besides the claim.
type cluster struct {
	slices   []*resourceapi.ResourceSlice
	classes  classes
	claims   map[string][]result
	features structured.Features
	cache    *cel.Cache
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

// gate makes the features those that kube-scheduler of this release has with its gates set so.
func (c *cluster) gate(gates map[string]bool) error {
	all := utilfeature.DefaultMutableFeatureGate.DeepCopy()
	if err := all.SetFromMap(gates); err != nil {
		return err
	}
	set := feature.NewSchedulerFeaturesFromGates(all)
	c.features = dynamicresources.AllocatorFeatures(set)
	c.cache = cel.NewCache(100, cel.Features{
		EnableConsumableCapacity: set.EnableDRAConsumableCapacity,
		EnableListTypeAttributes: set.EnableDRAListTypeAttributes,
	})
	return nil
}

// allocator knows the slices of all nodes; kube-scheduler makes one for each pod.
func (c *cluster) allocator(slices []*resourceapi.ResourceSlice) (structured.Allocator, error) {
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
	return structured.NewAllocator(background, c.features, state, c.classes, slices, c.cache)
}

func nodeOf(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}}}
}

func (c *cluster) allocate(node string, claim *resourceapi.ResourceClaim) ([]result, error) {
	allocator, err := c.allocator(c.slices)
	if err != nil {
		return nil, err
	}
	found, err := allocator.Allocate(background, nodeOf(node), []*resourceapi.ResourceClaim{claim})
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
		slices, err := decode(asked.Slices)
		c.slices = slices
		return answer{}, err
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
	case "gates":
		return answer{}, c.gate(asked.Gates)
	case "bench":
		found, err := c.bench(asked)
		return answer{Bench: found}, err
	default:
		return answer{}, fmt.Errorf("unknown order %q", asked.Do)
	}
	return answer{}, nil
}

func decode(texts []json.RawMessage) ([]*resourceapi.ResourceSlice, error) {
	slices := make([]*resourceapi.ResourceSlice, len(texts))
	for i, text := range texts {
		if err := json.Unmarshal(text, &slices[i]); err != nil {
			return nil, err
		}
	}
	return slices, nil
}

var background = context.Background()

func main() {
	known := &cluster{classes: classes{}, claims: map[string][]result{}}
	if err := known.gate(nil); err != nil {
		log.Fatalf("draalloc: %v", err)
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
