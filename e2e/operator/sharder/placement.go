package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Tokens that a shard has on the ring.
const tokens = 100

type token struct {
	hash  uint64
	shard string
}

// placement is a hash ring, ordered.
type placement []token

func place(shards []string) placement {
	var ring placement
	for _, shard := range shards {
		for i := range tokens {
			ring = append(ring, token{xxhash.Sum64String(fmt.Sprintf("%s%d", shard, i)), shard})
		}
	}
	slices.SortFunc(ring, func(a, b token) int { return cmp.Compare(a.hash, b.hash) })
	return ring
}

// owner is the shard of the first token at or after the key; nobody without shards.
func (p placement) owner(key string) string {
	if len(p) == 0 {
		return ""
	}
	at, _ := slices.BinarySearchFunc(p, xxhash.Sum64String(key), func(t token, hash uint64) int { return cmp.Compare(t.hash, hash) })
	return p[at%len(p)].shard
}

// key is that of the object, or of its controller; none where a controlled object has no controller.
func key(kind, group string, object metav1.Object, controlled bool) string {
	name := object.GetName()
	if controlled {
		owner := metav1.GetControllerOf(object)
		if owner == nil {
			return ""
		}
		group, kind, name = "", owner.Kind, owner.Name
		if before, _, found := strings.Cut(owner.APIVersion, "/"); found {
			group = before
		}
	}
	// That of a generated name is not known yet.
	if name == "" {
		return ""
	}
	return fmt.Sprintf("%s/%s/%s/%s", group, kind, object.GetNamespace(), name)
}
