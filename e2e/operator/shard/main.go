// Command shard is an operator that shards itself: controller-runtime with what the thesis's chapter "Shard Components" asks
// of a controller, and nothing else. It has a Lease of its own, watches only what is labelled for it, and acknowledges drains.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"ringside.example/e2e/operator/contract"
	"ringside.example/e2e/operator/website"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	clusterRing := flag.String("clusterring", "", "name of the ClusterRing")
	controllerRing := flag.String("controllerring", "", "name of the ControllerRing, instead of a ClusterRing")
	shard := flag.String("shard", os.Getenv("HOSTNAME"), "name of this shard, and of its Lease")
	namespace := flag.String("lease-namespace", "default", "namespace of the shard's Lease")
	duration := flag.Duration("lease-duration", 15*time.Second, "how long the Lease lasts without renewal")
	options := website.Options{}
	options.BindFlags(flag.CommandLine)
	logging := zap.Options{}
	logging.BindFlags(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&logging)))

	ring := contract.OfClusterRing(*clusterRing)
	if *controllerRing != "" {
		ring = contract.OfControllerRing(*controllerRing)
	}
	scheme, err := website.Scheme()
	if err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	lease, err := shardLease(config, ring, *namespace, *shard)
	if err != nil {
		return err
	}
	// Of the usual proportions.
	renewDeadline, retryPeriod := *duration*2/3, *duration/5
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		// Only with the shard's Lease do its controllers run; they stop with the process when it is lost.
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: lease,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       duration,
		RenewDeadline:                       &renewDeadline,
		RetryPeriod:                         &retryPeriod,
		Cache: cache.Options{
			DefaultLabelSelector: labels.SelectorFromSet(labels.Set{ring.Shard: *shard}),
		},
	})
	if err != nil {
		return err
	}
	acknowledging := &acknowledger{
		Client: mgr.GetClient(),
		shard:  ring.Shard,
		drain:  ring.Drain,
		inner:  options.Reconciler(mgr.GetClient()),
	}
	interesting := predicate.Or(predicate.GenerationChangedPredicate{}, drained(ring.Drain))
	if err := website.Controller(mgr, options.Concurrency, interesting).Complete(acknowledging); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

// The Lease of leader election, with the shard's name as its own and as the holder's, and the label of the ring.
func shardLease(config *rest.Config, ring contract.Names, namespace, shard string) (resourcelock.Interface, error) {
	client, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: shard},
		Client:     client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: shard},
		Labels:     map[string]string{ring.LeaseRing: ring.Ring},
	}, nil
}
