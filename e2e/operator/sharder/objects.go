package main

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ringside.example/e2e/operator/contract"
)

// Objects in one answer.
const pageSize = 500

// distribute looks at all objects of the ring, page by page, and has each come to where it belongs.
func (s *sharder) distribute(ctx context.Context, ring *clusterRing, available []string) error {
	placement := place(available)
	if len(placement) == 0 {
		return nil
	}
	for resource, controlled := range ring.resources() {
		kind, err := s.RESTMapper().KindFor(schema.GroupVersionResource{Group: resource.Group, Resource: resource.Resource})
		if err != nil {
			return err
		}
		page := metav1.PartialObjectMetadataList{}
		for more := true; more; more = page.Continue != "" {
			options := []client.ListOption{client.Limit(pageSize), client.Continue(page.Continue)}
			page = metav1.PartialObjectMetadataList{}
			page.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
			if err := s.List(ctx, &page, options...); err != nil {
				return err
			}
			for i := range page.Items {
				object := &page.Items[i]
				if slices.Contains([]string{"kube-system", "sharding-system"}, object.Namespace) {
					continue
				}
				object.SetGroupVersionKind(kind)
				if err := s.bring(ctx, object, placement.owner, available, controlled); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// bring takes the next step for an object: a controlled one is labelled at once, another is drained first where its shard
// is there to let go of it.
func (s *sharder) bring(
	ctx context.Context, object *metav1.PartialObjectMetadata, owner func(string) string, available []string, controlled bool,
) error {
	kind := object.GroupVersionKind()
	key := key(kind.Kind, kind.Group, object, controlled)
	if key == "" {
		return nil
	}
	names := contract.OfClusterRing(s.ring)
	shardLabel, drainLabel := names.Shard, names.Drain
	current, desired := object.Labels[shardLabel], owner(key)
	_, drained := object.Labels[drainLabel]
	if current == desired || (drained && slices.Contains(available, current)) {
		return nil
	}
	patch := client.MergeFromWithOptions(object.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if object.Labels == nil {
		object.Labels = map[string]string{}
	}
	if slices.Contains(available, current) && !controlled {
		object.Labels[drainLabel] = "true"
	} else {
		object.Labels[shardLabel] = desired
		delete(object.Labels, drainLabel)
	}
	return client.IgnoreNotFound(ignoreConflict(s.Patch(ctx, object, patch)))
}
