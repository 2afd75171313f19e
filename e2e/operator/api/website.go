// Package api has the Website, a custom resource.
package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of this package.
var GroupVersion = schema.GroupVersion{Group: "web.example.com", Version: "v1"}

// WebsiteSpec is what the user wants.
type WebsiteSpec struct {
	// Content is what the site shows.
	Content string `json:"content,omitempty"`
	// WorkMillis is how long it takes to set the site up.
	WorkMillis int64 `json:"workMillis,omitempty"`
}

// WebsiteStatus is what there is.
type WebsiteStatus struct {
	// ObservedGeneration is the generation that was last worked on.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// ReconciledBy names the replica that worked on it.
	ReconciledBy string `json:"reconciledBy,omitempty"`
}

// Website is a site that is served from a ConfigMap and a Secret.
type Website struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   WebsiteSpec   `json:"spec,omitempty"`
	Status WebsiteStatus `json:"status,omitempty"`
}

// WebsiteList is a list of Websites.
type WebsiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Website `json:"items"`
}

// AddToScheme makes the types known to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Website{}, &WebsiteList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
