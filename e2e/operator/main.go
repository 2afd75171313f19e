// Command operator is an ordinary controller, as anybody would write it with controller-runtime: it elects a leader,
// reads from its cache, and sets Websites up. It knows nothing of other replicas at work beside it.
package main

import (
	"flag"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"ringside.example/e2e/operator/api"
	"ringside.example/e2e/operator/report"
	"ringside.example/e2e/operator/website"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	instance := flag.String("instance", os.Getenv("HOSTNAME"), "name of this replica, as status.reconciledBy shows it")
	namespace := flag.String("leader-election-namespace", "default", "namespace of the leader election's Lease")
	concurrency := flag.Int("concurrency", 4, "how many Websites are worked on at once")
	metrics := flag.String("metrics-bind-address", "0", "where metrics are served; 0 for nowhere")
	chain := flag.Bool("chain", false, "whether the Secret belongs to the ConfigMap, and only that to the Website")
	collector := flag.String("collector", "", "URL that the start and end of each reconcile are reported to")
	logging := zap.Options{}
	logging.BindFlags(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&logging)))

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, api.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
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
	})
	if err != nil {
		return err
	}
	reconciler := &website.Reconciler{
		Client:   mgr.GetClient(),
		Report:   report.Reporter{URL: *collector, Instance: *instance},
		Instance: *instance,
		Chain:    *chain,
	}
	if err := reconciler.SetupWithManager(mgr, *concurrency); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
