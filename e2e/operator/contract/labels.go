// Package contract has the names that a sharder and its shards agree on, as the thesis lists them.
package contract

import (
	"crypto/sha256"
	"fmt"
)

// LeaseState is the label of a shard's Lease that says its state.
const LeaseState = "alpha.sharding.timebertt.dev/state"

// What a part of a label's key after the slash may have at most.
const longest = 63

// Names are the labels of a ring.
type Names struct {
	// Ring is the name of the ring.
	Ring string
	// LeaseRing is the key of the label of a shard's Lease that names the ring.
	LeaseRing string
	// Shard is the key of the label that names the shard of an object.
	Shard string
	// Drain is the key of the label that asks the shard to let go of an object.
	Drain string
}

// OfClusterRing returns the names of a ring of the kind that the thesis describes.
func OfClusterRing(ring string) Names {
	suffix := fmt.Sprintf("clusterring-%s-%s", Hash(ring), ring)
	return named("clusterring", ring, suffix[:min(len(suffix), longest)])
}

// OfControllerRing returns the names of a ring of the kind that came after it.
func OfControllerRing(ring string) Names {
	return named("controllerring", ring, ring)
}

func named(kind, ring, suffix string) Names {
	return Names{
		Ring:      ring,
		LeaseRing: "alpha.sharding.timebertt.dev/" + kind,
		Shard:     "shard.alpha.sharding.timebertt.dev/" + suffix,
		Drain:     "drain.alpha.sharding.timebertt.dev/" + suffix,
	}
}

// Hash tells rings apart whose names are cut.
func Hash(ring string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(ring)))[:8]
}
