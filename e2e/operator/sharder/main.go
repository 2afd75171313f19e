// Command sharder is a small sharder after the thesis's chapter "Sharder Components": it judges the Leases of shards, places
// objects by consistent hashing, asks live shards to let go, and labels in its webhook whatever comes without a label,
// acknowledgements included. It is for one ring, and looks at everything again and again instead of watching.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

func main() {
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	ring := flag.String("clusterring", "", "name of the ClusterRing")
	listen := flag.String("webhook-listen", "127.0.0.1:9443", "where the webhook is served, by IP address")
	interval := flag.Duration("interval", 500*time.Millisecond, "how often Leases and objects are looked at")
	flag.Parse()
	ctrl.SetLogger(zap.New())

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		admissionregistrationv1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.QPS = -1
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	sharder := &sharder{Client: api, ring: *ring}
	bundle, err := sharder.serve(*listen)
	if err != nil {
		return err
	}
	log := ctrl.Log.WithName("sharder")
	for ctx.Err() == nil {
		if err := sharder.pass(ctx, *listen, bundle); err != nil {
			log.Error(err, "a pass failed")
		}
		select {
		case <-ctx.Done():
		case <-time.After(*interval):
		}
	}
	return nil
}

// pass looks at everything once: the ring, its shards, and its objects.
func (s *sharder) pass(ctx context.Context, listen string, bundle []byte) error {
	ring, err := s.read(ctx)
	if err != nil {
		return err
	}
	if err := s.configureWebhook(ctx, ring, listen, bundle); err != nil {
		return err
	}
	shards, available, err := s.judge(ctx)
	if err != nil {
		return err
	}
	s.known.Store(&known{ring: ring, placement: place(available)})
	if err := s.report(ctx, ring, shards, len(available)); err != nil {
		return err
	}
	return s.distribute(ctx, ring, available)
}
