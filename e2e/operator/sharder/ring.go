package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"ringside.example/e2e/operator/contract"
)

type sharder struct {
	client.Client
	ring  string
	known atomic.Pointer[known]
}

// known is what the webhook decides by.
type known struct {
	ring      *clusterRing
	placement placement
}

type groupResource struct {
	Group    string `json:"group"`
	Resource string `json:"resource"`
}

type clusterRing struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Resources []struct {
			groupResource       `json:",inline"`
			ControlledResources []groupResource `json:"controlledResources"`
		} `json:"resources"`
	} `json:"spec"`
	raw unstructured.Unstructured
}

// Each resource of the ring, and whether it is controlled by another.
func (r *clusterRing) resources() map[groupResource]bool {
	controlled := map[groupResource]bool{}
	for _, main := range r.Spec.Resources {
		controlled[main.groupResource] = false
		for _, child := range main.ControlledResources {
			controlled[child] = true
		}
	}
	return controlled
}

func (s *sharder) read(ctx context.Context) (*clusterRing, error) {
	ring := &clusterRing{}
	ring.raw.SetGroupVersionKind(schema.GroupVersionKind{Group: "sharding.timebertt.dev", Version: "v1alpha1", Kind: "ClusterRing"})
	if err := s.Get(ctx, client.ObjectKey{Name: s.ring}, &ring.raw); err != nil {
		return nil, err
	}
	content, err := json.Marshal(ring.raw.Object)
	if err != nil {
		return nil, err
	}
	return ring, json.Unmarshal(content, ring)
}

// report writes how many shards there are.
func (s *sharder) report(ctx context.Context, ring *clusterRing, shards, available int) error {
	before := ring.raw.DeepCopy()
	status := map[string]any{
		"observedGeneration": ring.Metadata.Generation,
		"shards":             int64(shards),
		"availableShards":    int64(available),
		"conditions": []any{map[string]any{
			"type": "Ready", "status": "True", "observedGeneration": ring.Metadata.Generation,
			"reason": "ReconciliationSucceeded", "message": "ClusterRing was successfully reconciled",
			"lastTransitionTime": ring.Metadata.CreationTimestamp.UTC().Format("2006-01-02T15:04:05Z"),
		}},
	}
	ring.raw.Object["status"] = status
	return s.Status().Patch(ctx, &ring.raw, client.MergeFrom(before))
}

// configureWebhook has the API server ask about whatever comes without a shard label.
func (s *sharder) configureWebhook(ctx context.Context, ring *clusterRing, listen string, bundle []byte) error {
	url := fmt.Sprintf("https://%s/webhooks/sharder/clusterring/%s", listen, s.ring)
	policy, none := admissionregistrationv1.Ignore, admissionregistrationv1.SideEffectClassNone
	scope, seconds := admissionregistrationv1.AllScopes, int32(5)
	var rules []admissionregistrationv1.RuleWithOperations
	for resource := range ring.resources() {
		rules = append(rules, admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{resource.Group}, APIVersions: []string{"*"}, Resources: []string{resource.Resource}, Scope: &scope,
			},
		})
	}
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("sharding-clusterring-%s-%s", contract.Hash(s.ring), s.ring)},
	}
	_, err := controllerutil.CreateOrUpdate(ctx, s.Client, configuration, func() error {
		if len(configuration.Webhooks) > 0 {
			return nil
		}
		configuration.Webhooks = []admissionregistrationv1.MutatingWebhook{{
			Name:         "sharder.sharding.timebertt.dev",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: bundle},
			Rules:        rules,
			ObjectSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: contract.OfClusterRing(s.ring).Shard, Operator: metav1.LabelSelectorOpDoesNotExist},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-system", "sharding-system"}},
			}},
			FailurePolicy: &policy, SideEffects: &none, TimeoutSeconds: &seconds,
			AdmissionReviewVersions: []string{"v1"},
		}}
		return nil
	})
	return err
}
