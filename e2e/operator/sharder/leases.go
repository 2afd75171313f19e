package main

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ringside.example/e2e/operator/contract"
)

// Who acquires the Lease of a shard that does not renew it.
const acquirer = "shardlease-controller"

// How long a Lease that its shard does not hold is kept after its end.
const orphanedAfter = time.Minute

// judge finds out who is there, and does what follows from a Lease's state. It returns how many shards have a Lease, and the
// names of those that take part in partitioning.
func (s *sharder) judge(ctx context.Context) (int, []string, error) {
	var leases coordinationv1.LeaseList
	if err := s.List(ctx, &leases, client.MatchingLabels{contract.OfClusterRing(s.ring).LeaseRing: s.ring}); err != nil {
		return 0, nil, err
	}
	var available []string
	for i := range leases.Items {
		lease := &leases.Items[i]
		there, err := s.act(ctx, lease, state(lease, time.Now()))
		if err != nil {
			return 0, nil, err
		}
		if there {
			available = append(available, lease.Name)
		}
	}
	return len(leases.Items), available, nil
}

// state is that of the table "Shard lease states".
func state(lease *coordinationv1.Lease, now time.Time) string {
	duration := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 15)) * time.Second
	expired := now.Sub(ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Add(duration))
	switch held := ptr.Deref(lease.Spec.HolderIdentity, "") == lease.Name; {
	case held && expired < 0:
		return "ready"
	case held && expired < duration:
		return "expired"
	case held:
		return "uncertain"
	case expired < orphanedAfter:
		return "dead"
	default:
		return "orphaned"
	}
}

// act returns whether the shard takes part in partitioning.
func (s *sharder) act(ctx context.Context, lease *coordinationv1.Lease, state string) (bool, error) {
	switch state {
	case "orphaned":
		return false, client.IgnoreNotFound(s.Delete(ctx, lease))
	case "uncertain":
		now := metav1.NowMicro()
		lease.Spec.HolderIdentity = ptr.To(acquirer)
		lease.Spec.LeaseDurationSeconds = ptr.To(2 * ptr.Deref(lease.Spec.LeaseDurationSeconds, 15))
		lease.Spec.RenewTime, lease.Spec.AcquireTime = &now, &now
		lease.Labels[contract.LeaseState] = "dead"
		err := s.Update(ctx, lease)
		// It has renewed.
		return apierrors.IsConflict(err), client.IgnoreNotFound(ignoreConflict(err))
	}
	if lease.Labels[contract.LeaseState] != state {
		before := lease.DeepCopy()
		lease.Labels[contract.LeaseState] = state
		if err := s.Patch(ctx, lease, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			return false, err
		}
	}
	return state == "ready" || state == "expired", nil
}

func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}
