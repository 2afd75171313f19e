// Command operator is an ordinary controller, as anybody would write it with controller-runtime: it elects a leader,
// reads from its cache, and sets Websites up. It knows nothing of other replicas at work beside it.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"ringside.example/e2e/operator/website"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	namespace := flag.String("leader-election-namespace", "default", "namespace of the leader election's Lease")
	renewDeadline := flag.Duration("leader-elect-renew-deadline", 10*time.Second, "how long the leader tries to renew its Lease before it gives up")
	metrics := flag.String("metrics-bind-address", "0", "where metrics are served; 0 for nowhere")
	options := website.Options{}
	options.BindFlags(flag.CommandLine)
	logging := zap.Options{}
	logging.BindFlags(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&logging)))

	scheme, err := website.Scheme()
	if err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Metrics:                       metricsserver.Options{BindAddress: *metrics},
		LeaderElection:                true,
		LeaderElectionID:              "website-operator",
		LeaderElectionNamespace:       *namespace,
		LeaderElectionReleaseOnCancel: true,
		RenewDeadline:                 renewDeadline,
	})
	if err != nil {
		return err
	}
	if err := options.Reconciler(mgr.GetClient()).SetupWithManager(mgr, options.Concurrency); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
