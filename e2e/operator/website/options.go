package website

import (
	"flag"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ringside.example/e2e/operator/api"
	"ringside.example/e2e/operator/report"
)

// Options are the flags that all operators of this module have in common.
type Options struct {
	// Concurrency is how many Websites are worked on at once.
	Concurrency int

	instance  string
	chain     bool
	collector string
}

// BindFlags adds them to a set of flags.
func (o *Options) BindFlags(flags *flag.FlagSet) {
	flags.IntVar(&o.Concurrency, "concurrency", 4, "how many Websites are worked on at once")
	flags.StringVar(&o.instance, "instance", os.Getenv("HOSTNAME"), "name of this process, as status.reconciledBy shows it")
	flags.BoolVar(&o.chain, "chain", false, "whether the Secret belongs to the ConfigMap, and only that to the Website")
	flags.StringVar(&o.collector, "collector", "", "URL that the start and end of each reconcile are reported to")
}

// Reconciler works as they say.
func (o *Options) Reconciler(client client.Client) *Reconciler {
	return &Reconciler{
		Client:   client,
		Report:   report.Reporter{URL: o.collector, Instance: o.instance},
		Instance: o.instance,
		Chain:    o.chain,
	}
}

// Scheme has the resources that it reads and writes.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, api.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}
