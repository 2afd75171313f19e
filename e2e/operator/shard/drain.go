package main

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"ringside.example/e2e/operator/api"
)

// drained is interested in whatever is to be let go of.
func drained(label string) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(object client.Object) bool {
		_, drained := object.GetLabels()[label]
		return drained
	})
}

// acknowledger lets go of what is drained, and leaves the rest to the controller that was there before. Nobody works on the
// same object meanwhile: the queue gives it to one worker at a time.
type acknowledger struct {
	client.Client
	shard, drain string
	inner        reconcile.Reconciler
}

// Reconcile takes both labels off where the object is drained.
func (a *acknowledger) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var website api.Website
	if err := a.Get(ctx, request.NamespacedName, &website); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if _, drained := website.Labels[a.drain]; !drained {
		return a.inner.Reconcile(ctx, request)
	}
	// Only if it is still as the cache has it: it may have been let go of already, and have another shard.
	patch := client.MergeFromWithOptions(website.DeepCopy(), client.MergeFromWithOptimisticLock{})
	delete(website.Labels, a.shard)
	delete(website.Labels, a.drain)
	return ctrl.Result{}, client.IgnoreNotFound(a.Patch(ctx, &website, patch))
}
