// Command fakecri serves Kubernetes' own in-memory container runtime on a unix socket.
//
// Containers "run" without processes, which is all that the kubelet's device, CPU, memory
// and topology managers need in order to admit pods for real.
package main

import (
	"log"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cri-client/pkg/fake"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: fakecri unix:///path/to.sock")
	}
	runtime := fake.NewFakeRemoteRuntime()
	// The kubelet takes an image without a size for a broken one, and the default is 0.
	runtime.ImageService.SetFakeImageSize(1 << 20)
	if err := runtime.Start(os.Args[1]); err != nil {
		log.Fatalf("fakecri: cannot serve %s: %v", os.Args[1], err)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
	runtime.Stop()
}
