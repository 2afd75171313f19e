// Command elector takes part in a leader election and does nothing else: by client-go's own code, or by controller-runtime's
// manager around it. It says on its output when it leads and when it has lost that, and tries again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// The defaults of both.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

type election struct {
	config                    *rest.Config
	namespace, lock, identity string
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	way := flag.String("way", "client-go", "whose code elects: client-go or controller-runtime")
	e := election{}
	flag.StringVar(&e.namespace, "namespace", "default", "namespace of the Lease")
	flag.StringVar(&e.lock, "lock", "", "name of the Lease")
	flag.StringVar(&e.identity, "identity", "", "who takes part")
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	e.config = config
	takePart := e.byClientGo
	if *way == "controller-runtime" {
		takePart = e.byControllerRuntime
	}
	ctx := ctrl.SetupSignalHandler()
	for ctx.Err() == nil {
		if err := takePart(ctx); err != nil {
			return err
		}
	}
	return nil
}

// byClientGo returns when the lead is lost.
func (e election) byClientGo(ctx context.Context) error {
	client, err := coordinationv1.NewForConfig(e.config)
	if err != nil {
		return err
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: e.namespace, Name: e.lock},
			Client:     client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.identity},
		},
		LeaseDuration:   leaseDuration,
		RenewDeadline:   renewDeadline,
		RetryPeriod:     retryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { fmt.Println("leading") },
			OnStoppedLeading: func() { fmt.Println("lost") },
		},
	})
	return nil
}

// byControllerRuntime returns when the manager has ended, as it does when the lead is lost.
func (e election) byControllerRuntime(ctx context.Context) error {
	mgr, err := ctrl.NewManager(e.config, ctrl.Options{
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		LeaderElection:          true,
		LeaderElectionID:        e.lock,
		LeaderElectionNamespace: e.namespace,
		LeaseDuration:           new(leaseDuration),
		RenewDeadline:           new(renewDeadline),
		RetryPeriod:             new(retryPeriod),
	})
	if err != nil {
		return err
	}
	leads := false
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		leads = true
		fmt.Println("leading")
		<-ctx.Done()
		return nil
	})); err != nil {
		return err
	}
	err = mgr.Start(ctx)
	if leads && err != nil && ctx.Err() == nil {
		fmt.Println("lost")
		return nil
	}
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(errors.New("the manager has ended without a lead"), err)
}
