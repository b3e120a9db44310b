// Command fakecri serves Kubernetes' own in-memory container runtime on a unix socket.
//
// Containers "run" without processes, which is all that the kubelet's device, CPU, memory
// and topology managers need in order to admit pods for real. What the kubelet asks for when
// it creates a container is written to stdout, one JSON object a line: the in-memory runtime
// forgets it, and it is the container's view of its devices.
//
// Forwarded ports lead to 127.0.0.1 of this process's network namespace, as they lead to localhost
// of the pod's in containerd (internal/cri/server/sandbox_portforward_linux.go).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/fake"
	"k8s.io/cri-client/pkg/util"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// created is one container as the kubelet wants it.
type created struct {
	ID        string            `json:"id"`
	Pod       string            `json:"pod"`
	UID       string            `json:"uid"`
	Container string            `json:"container"`
	Attempt   uint32            `json:"attempt"`
	CDI       []string          `json:"cdi"`
	Devices   []string          `json:"devices"`
	Env       map[string]string `json:"env"`
	Mounts    []string          `json:"mounts"`
}

// recorder is the in-memory runtime, but for a line about each new container, and for CDI names,
// which it resolves where the file `directories` names the directories of specifications.
type recorder struct {
	*fake.RemoteRuntime
	lines       *json.Encoder
	directories string
	streams     streaming.Server
}

func (r *recorder) PortForward(_ context.Context, request *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return r.streams.GetPortForward(request)
}

// forwarder carries forwarded connections; its containers have no process to run or attach to.
type forwarder struct{}

func (forwarder) Exec(context.Context, string, []string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize) error {
	return errors.ErrUnsupported
}

func (forwarder) Attach(context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize) error {
	return errors.ErrUnsupported
}

func (forwarder) PortForward(ctx context.Context, _ string, port int32, stream io.ReadWriteCloser) error {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port)))
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp4", address)
	if err != nil {
		return err
	}
	defer connection.Close()
	go io.Copy(connection, stream)
	_, err = io.Copy(stream, connection)
	return err
}

// startStreams serves forwarded ports on a free port of 127.0.0.1, which the API server reaches by
// way of the kubelet.
func startStreams() (streaming.Server, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	config := streaming.DefaultConfig
	config.Addr = listener.Addr().String()
	server, err := streaming.NewServer(config, forwarder{})
	if err != nil {
		return nil, err
	}
	go func() { log.Fatalf("fakecri: streams: %v", http.Serve(listener, server)) }()
	return server, nil
}

func (r *recorder) CreateContainer(ctx context.Context, request *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	if err := r.resolve(request.Config.GetCDIDevices()); err != nil {
		return nil, err
	}
	answer, err := r.RemoteRuntime.CreateContainer(ctx, request)
	if err != nil {
		return nil, err
	}
	if err := r.lines.Encode(describe(answer.ContainerId, request)); err != nil {
		return nil, err
	}
	return answer, nil
}

// resolve looks every device up as containerd does, which creates no container where a
// specification lacks one (containerd pkg/cdi/oci_opt.go, container-device-interface
// pkg/cdi/cache.go InjectDevices: "unresolvable CDI devices").
func (r *recorder) resolve(devices []*runtimeapi.CDIDevice) error {
	list, err := os.ReadFile(r.directories)
	if err != nil || len(devices) == 0 {
		return nil // nobody asked for it
	}
	known := map[string]bool{}
	for _, directory := range strings.Fields(string(list)) {
		files, _ := filepath.Glob(filepath.Join(directory, "*.json"))
		for _, file := range files {
			var spec struct {
				Kind    string
				Devices []struct{ Name string }
			}
			text, err := os.ReadFile(file)
			if err != nil || json.Unmarshal(text, &spec) != nil {
				continue // the cache of containerd leaves out what it cannot read
			}
			for _, device := range spec.Devices {
				known[spec.Kind+"="+device.Name] = true
			}
		}
	}
	missing := []string{}
	for _, device := range devices {
		if !known[device.Name] {
			missing = append(missing, device.Name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("CDI device injection failed: unresolvable CDI devices %s", strings.Join(missing, ", "))
	}
	return nil
}

func describe(id string, request *runtimeapi.CreateContainerRequest) created {
	config := request.Config
	line := created{
		ID:        id,
		Pod:       request.SandboxConfig.GetMetadata().GetName(),
		UID:       request.SandboxConfig.GetMetadata().GetUid(),
		Container: config.GetMetadata().GetName(),
		Attempt:   config.GetMetadata().GetAttempt(),
		CDI:       []string{},
		Devices:   []string{},
		Env:       map[string]string{},
		Mounts:    []string{},
	}
	for _, device := range config.GetCDIDevices() {
		line.CDI = append(line.CDI, device.Name)
	}
	for _, device := range config.GetDevices() {
		line.Devices = append(line.Devices, device.HostPath)
	}
	for _, entry := range config.GetEnvs() {
		line.Env[entry.Key] = string(entry.Value)
	}
	for _, mount := range config.GetMounts() {
		line.Mounts = append(line.Mounts, mount.HostPath)
	}
	return line
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: fakecri unix:///path/to.sock FILE-WITH-CDI-DIRECTORIES")
	}
	runtime := fake.NewFakeRemoteRuntime()
	// The kubelet takes an image without a size for a broken one, and the default is 0.
	runtime.ImageService.SetFakeImageSize(1 << 20)
	runtime.RuntimeService.FakeStatus = &runtimeapi.RuntimeStatus{
		Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true},
			{Type: runtimeapi.NetworkReady, Status: true},
		},
	}
	listener, err := util.CreateListener(os.Args[1])
	if err != nil {
		log.Fatalf("fakecri: cannot serve %s: %v", os.Args[1], err)
	}
	streams, err := startStreams()
	if err != nil {
		log.Fatalf("fakecri: cannot forward ports: %v", err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, &recorder{runtime, json.NewEncoder(os.Stdout), os.Args[2], streams})
	runtimeapi.RegisterImageServiceServer(server, runtime)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-stop
		server.Stop()
	}()
	if err := server.Serve(listener); err != nil {
		log.Fatalf("fakecri: %v", err)
	}
}
