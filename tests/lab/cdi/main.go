// Resolves CDI devices and applies their edits with CDI's own library.
//
// It reads one JSON list of directories from each line of standard input, in ascending order of
// precedence, and answers each with one line of JSON: for every device that resolves whether its
// edits can be applied here and with which device numbers, and which files have errors.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

type answer struct {
	Devices map[string]device   `json:"devices"`
	Errors  map[string][]string `json:"errors"`
}

type device struct {
	Path    string            `json:"path"`
	Problem string            `json:"problem"`
	Numbers map[string]string `json:"numbers"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var dirs []string
		if err := json.Unmarshal(lines.Bytes(), &dirs); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if err := out.Encode(resolved(dirs)); err != nil {
			os.Exit(1)
		}
	}
}

func resolved(dirs []string) answer {
	found := answer{Devices: map[string]device{}, Errors: map[string][]string{}}
	cache, err := cdi.NewCache(cdi.WithAutoRefresh(false), cdi.WithSpecDirs(dirs...))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for path, errs := range cache.GetErrors() {
		for _, err := range errs {
			found.Errors[path] = append(found.Errors[path], err.Error())
		}
	}
	for _, name := range cache.ListDevices() {
		spec := &oci.Spec{Linux: &oci.Linux{}}
		one := device{Path: cache.GetDevice(name).GetSpec().GetPath(), Numbers: map[string]string{}}
		if _, err := cache.InjectDevices(spec, name); err != nil {
			one.Problem = err.Error()
		}
		for _, node := range spec.Linux.Devices {
			one.Numbers[node.Path] = fmt.Sprintf("%s %d:%d", node.Type, node.Major, node.Minor)
		}
		found.Devices[name] = one
	}
	return found
}
