// map_order prints lists of free devices as the kubelet makes them, from Go's own maps.
//
// Its arguments are the number of devices, the number of lists, and the free devices. Every list
// is one line of JSON on standard output. The steps are those of devicesToAllocate without a hint
// of the Topology Manager (kubelet v1.36.3, pkg/kubelet/cm/devicemanager/manager.go).
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
)

type set map[string]struct{}

// keep returns the members of s that are in wanted, in a map that grows as it is filled.
func keep(s, wanted set) set {
	result := make(set, 0)
	for name := range s {
		if _, ok := wanted[name]; ok {
			result[name] = struct{}{}
		}
	}
	return result
}

// clone returns a copy in a map that is made as large as it must be.
func clone(s set) set {
	result := make(set, len(s))
	for name := range s {
		result[name] = struct{}{}
	}
	return result
}

// id returns a device id of the length of a GPU's UUID.
func id(device int) string {
	return fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", device)
}

func run(arguments []string) error {
	numbers := make([]int, 0, len(arguments))
	for _, text := range arguments {
		number, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		numbers = append(numbers, number)
	}
	if len(numbers) < 3 {
		return fmt.Errorf("want devices, lists and the free devices, got %d numbers", len(numbers))
	}
	free, place := make(set), make(map[string]int)
	for _, device := range numbers[2:] {
		free[id(device)] = struct{}{}
	}
	output := bufio.NewWriter(os.Stdout)
	lines := json.NewEncoder(output)
	for range numbers[1] {
		plugin := make(set)
		for device := range numbers[0] {
			plugin[id(device)] = struct{}{}
			place[id(device)] = device
		}
		healthy := make(set, 0)
		for name := range plugin {
			healthy[name] = struct{}{}
		}
		order := make([]int, 0, len(free))
		for name := range clone(keep(healthy, free)) {
			order = append(order, place[name])
		}
		if err := lines.Encode(order); err != nil {
			return err
		}
	}
	return output.Flush()
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "map_order:", err)
		os.Exit(1)
	}
}
