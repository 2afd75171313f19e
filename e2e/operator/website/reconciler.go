// Package website is what the operators of this module do: they set Websites up.
package website

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"ringside.example/e2e/operator/api"
	"ringside.example/e2e/operator/report"
)

// Reconciler sets Websites up.
type Reconciler struct {
	client.Client
	Report   report.Reporter
	Instance string
	// Chain makes the Secret the ConfigMap's child, and not the Website's.
	Chain bool
}

// SetupWithManager has the manager run it.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, concurrency int) error {
	return Controller(mgr, concurrency, predicate.GenerationChangedPredicate{}).Complete(r)
}

// Controller watches Websites, for changes that interest the predicate, and what belongs to them.
func Controller(mgr ctrl.Manager, concurrency int, interesting predicate.Predicate) *ctrl.Builder {
	return ctrl.NewControllerManagedBy(mgr).
		For(&api.Website{}, builder.WithPredicates(interesting)).
		Owns(&corev1.ConfigMap{}).
		Owns(&corev1.Secret{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency})
}

// Reconcile makes a Website what its spec says.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (_ ctrl.Result, err error) {
	var website api.Website
	if err := r.Get(ctx, request.NamespacedName, &website); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !website.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	if err := r.Report.Start(website.UID, website.Generation); err != nil {
		return ctrl.Result{}, err
	}
	defer func() { err = errors.Join(err, r.Report.End(website.UID, website.Generation, err)) }()

	select {
	case <-ctx.Done():
		return ctrl.Result{}, ctx.Err()
	case <-time.After(time.Duration(website.Spec.WorkMillis) * time.Millisecond):
	}
	configMap, err := r.configMap(ctx, &website)
	if err != nil {
		return ctrl.Result{}, err
	}
	var owner client.Object = &website
	if r.Chain {
		owner = configMap
	}
	if err := r.secret(ctx, &website, owner); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.status(ctx, &website)
}

func (r *Reconciler) configMap(ctx context.Context, website *api.Website) (*corev1.ConfigMap, error) {
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: website.Namespace, Name: website.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, child, func() error {
		child.Data = map[string]string{"index.html": website.Spec.Content}
		return controllerutil.SetControllerReference(website, child, r.Scheme())
	})
	return child, err
}

func (r *Reconciler) secret(ctx context.Context, website *api.Website, owner client.Object) error {
	child := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: website.Namespace, Name: website.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, child, func() error {
		child.Data = map[string][]byte{"site": []byte(website.Name)}
		return controllerutil.SetControllerReference(owner, child, r.Scheme())
	})
	return err
}

func (r *Reconciler) status(ctx context.Context, website *api.Website) error {
	status := api.WebsiteStatus{ObservedGeneration: website.Generation, ReconciledBy: r.Instance}
	if website.Status == status {
		return nil
	}
	before := website.DeepCopy()
	website.Status = status
	return r.Status().Patch(ctx, website, client.MergeFrom(before))
}
