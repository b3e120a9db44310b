// Command fakecri serves Kubernetes' own in-memory container runtime on a unix socket.
//
// Containers "run" without processes, which is all that the kubelet's device, CPU, memory
// and topology managers need in order to admit pods for real. What the kubelet asks for when
// it creates a container is written to stdout, one JSON object a line: the in-memory runtime
// forgets it, and it is the container's view of its devices.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"os/signal"
	"syscall"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/fake"
	"k8s.io/cri-client/pkg/util"
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

// recorder is the in-memory runtime, but for a line about each new container.
type recorder struct {
	*fake.RemoteRuntime
	lines *json.Encoder
}

func (r *recorder) CreateContainer(ctx context.Context, request *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	answer, err := r.RemoteRuntime.CreateContainer(ctx, request)
	if err != nil {
		return nil, err
	}
	if err := r.lines.Encode(describe(answer.ContainerId, request)); err != nil {
		return nil, err
	}
	return answer, nil
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
	if len(os.Args) != 2 {
		log.Fatal("usage: fakecri unix:///path/to.sock")
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
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, &recorder{runtime, json.NewEncoder(os.Stdout)})
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
