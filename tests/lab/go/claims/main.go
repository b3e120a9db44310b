// Command claims runs the two controllers of kube-controller-manager that DRA needs: the one that
// makes claims from templates and frees those of pods that are gone, and the one that evicts pods
// from tainted devices. Both are Kubernetes' own; the manager around them is left out, because its
// forty other controllers take minutes to build.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

const workers = 2

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: claims KUBECONFIG")
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	if err != nil {
		log.Fatalf("claims: %v", err)
	}
	config.QPS, config.Burst = 100, 200
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatalf("claims: %v", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	all := informers.NewSharedInformerFactory(client, 0)
	pods, resource := all.Core().V1().Pods(), all.Resource().V1()
	claims, err := newClaims(klog.FromContext(ctx), client, pods, resource)
	if err != nil {
		log.Fatalf("claims: %v", err)
	}
	taints := newTaints(client, pods, resource)
	all.Start(ctx.Done())
	go claims.Run(ctx, workers)
	if err := taints.Run(ctx, workers); err != nil {
		log.Fatalf("claims: %v", err)
	}
}
