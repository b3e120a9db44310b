// gpuallocator answers allocation requests with NVIDIA's best-effort policy, for comparison.
//
// The first line of standard input is a machine, every other line a request; both are JSON.
// Each request gets one line of JSON on standard output. It ends with its input.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/NVIDIA/go-gpuallocator/gpuallocator"
)

const (
	longestLine     = 1 << 20 // bytes
	processCPUClock = 2       // CLOCK_PROCESS_CPUTIME_ID of Linux, clock_gettime(2)
)

// machine holds, by row and column, what NVIDIA's reader stores of two GPUs: a PCIe level from 1
// (across sockets) to 6 (one board), 0 for unknown, and the NVLinks that the row's GPU counts.
type machine struct {
	Pcie    [][]uint `json:"pcie"`
	Nvlinks [][]uint `json:"nvlinks"`
}

// request asks Repeat times for Size of the Free GPUs; both lists are indices, in their order.
type request struct {
	Free     []int `json:"free"`
	Required []int `json:"required"`
	Size     int   `json:"size"`
	Repeat   int   `json:"repeat"`
}

// answer names the chosen GPUs, null where the library returned no device. CPUNs is the CPU time
// of one call, all threads of this process together.
type answer struct {
	Chosen []*int  `json:"chosen"`
	Panic  *string `json:"panic"`
	CPUNs  int64   `json:"cpu_ns"`
}

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "gpuallocator:", err)
		os.Exit(1)
	}
}

func serve() error {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 0, 4096), longestLine)
	if !lines.Scan() {
		return errors.Join(errors.New("no machine on the first line"), lines.Err())
	}
	var described machine
	if err := json.Unmarshal(lines.Bytes(), &described); err != nil {
		return fmt.Errorf("machine: %w", err)
	}
	gpus, err := devices(described)
	if err != nil {
		return fmt.Errorf("machine: %w", err)
	}
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			return fmt.Errorf("request: %w", err)
		}
		given, err := reply(gpus, asked)
		if err != nil {
			return fmt.Errorf("request: %w", err)
		}
		if err := out.Encode(given); err != nil {
			return err
		}
	}
	return lines.Err()
}

// devices builds the library's records as its own reader does from NVML: the PCIe level first,
// then one entry for all NVLinks of the pair.
func devices(described machine) ([]*gpuallocator.Device, error) {
	count := len(described.Pcie)
	if len(described.Nvlinks) != count {
		return nil, fmt.Errorf("%d rows of pcie, %d of nvlinks", count, len(described.Nvlinks))
	}
	gpus := make([]*gpuallocator.Device, count)
	for i := range gpus {
		gpus[i] = &gpuallocator.Device{Index: i, Links: map[int][]gpuallocator.P2PLink{}}
		gpus[i].UUID = fmt.Sprintf("GPU-%d", i)
	}
	for i := range gpus {
		if len(described.Pcie[i]) != count || len(described.Nvlinks[i]) != count {
			return nil, fmt.Errorf("row %d is not as long as there are GPUs", i)
		}
		for j := range gpus {
			if i == j {
				continue
			}
			if level := described.Pcie[i][j]; level > 0 {
				gpus[i].Links[j] = append(gpus[i].Links[j], link(gpus[j], level))
			}
			if links := described.Nvlinks[i][j]; links > 0 {
				gpus[i].Links[j] = append(gpus[i].Links[j], link(gpus[j], 6+links))
			}
		}
	}
	return gpus, nil
}

func link(to *gpuallocator.Device, kind uint) gpuallocator.P2PLink {
	found := gpuallocator.P2PLink{GPU: to}
	assign(&found.Type, kind)
	return found
}

// assign sets a number whose type is internal to the library and so cannot be named here.
func assign[T ~uint](to *T, value uint) {
	*to = T(value)
}

func reply(gpus []*gpuallocator.Device, asked request) (answer, error) {
	free, err := named(gpus, asked.Free)
	if err != nil {
		return answer{}, err
	}
	required, err := named(gpus, asked.Required)
	if err != nil {
		return answer{}, err
	}
	policy := gpuallocator.NewBestEffortPolicy()
	times := max(asked.Repeat, 1)
	var chosen []*gpuallocator.Device
	var panicked *string
	runtime.GC() // leave no garbage of one request to the next
	before := cpuNs()
	for i := 0; i < times && panicked == nil; i++ {
		chosen, panicked = allocate(policy, free, required, asked.Size)
	}
	spent := (cpuNs() - before) / int64(times)
	given := answer{Chosen: []*int{}, Panic: panicked, CPUNs: spent}
	for _, gpu := range chosen {
		if gpu == nil {
			given.Chosen = append(given.Chosen, nil)
		} else {
			given.Chosen = append(given.Chosen, &gpu.Index)
		}
	}
	return given, nil
}

func allocate(
	policy gpuallocator.Policy, free, required []*gpuallocator.Device, size int,
) (chosen []*gpuallocator.Device, panicked *string) {
	defer func() {
		if reason := recover(); reason != nil {
			text := fmt.Sprint(reason)
			chosen, panicked = nil, &text
		}
	}()
	return policy.Allocate(free, required, size), nil
}

func named(gpus []*gpuallocator.Device, indices []int) ([]*gpuallocator.Device, error) {
	found := make([]*gpuallocator.Device, 0, len(indices))
	for _, index := range indices {
		if index < 0 || index >= len(gpus) {
			return nil, fmt.Errorf("no GPU %d", index)
		}
		found = append(found, gpus[index])
	}
	return found, nil
}

// cpuNs is the CPU time of this process in nanoseconds.
func cpuNs() int64 {
	var now syscall.Timespec
	_, _, failed := syscall.Syscall(
		syscall.SYS_CLOCK_GETTIME, processCPUClock, uintptr(unsafe.Pointer(&now)), 0,
	)
	if failed != 0 {
		panic(failed)
	}
	return now.Nano()
}
