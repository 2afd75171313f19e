package api

import "k8s.io/apimachinery/pkg/runtime"

// DeepCopyInto copies the Website. Spec and status are plain values.
func (in *Website) DeepCopyInto(out *Website) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
}

// DeepCopy copies the Website.
func (in *Website) DeepCopy() *Website {
	out := new(Website)
	in.DeepCopyInto(out)
	return out
}

// DeepCopyObject copies the Website.
func (in *Website) DeepCopyObject() runtime.Object { return in.DeepCopy() }

// DeepCopyObject copies the list.
func (in *WebsiteList) DeepCopyObject() runtime.Object {
	out := &WebsiteList{TypeMeta: in.TypeMeta, Items: make([]Website, len(in.Items))}
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range in.Items {
		in.Items[i].DeepCopyInto(&out.Items[i])
	}
	return out
}
