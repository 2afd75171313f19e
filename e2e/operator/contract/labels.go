// Package contract has the names that a sharder and its shards agree on, as the thesis lists them.
package contract

import (
	"crypto/sha256"
	"fmt"
)

// Labels of a shard's Lease.
const (
	LeaseRing  = "alpha.sharding.timebertt.dev/clusterring"
	LeaseState = "alpha.sharding.timebertt.dev/state"
)

// What a part of a label's key after the slash may have at most.
const longest = 63

// Hash tells rings apart whose names are cut.
func Hash(ring string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(ring)))[:8]
}

// ShardLabel is the key of the label that names the shard of an object.
func ShardLabel(ring string) string {
	return "shard.alpha.sharding.timebertt.dev/" + suffix(ring)
}

// DrainLabel is the key of the label that asks the shard to let go of an object.
func DrainLabel(ring string) string {
	return "drain.alpha.sharding.timebertt.dev/" + suffix(ring)
}

func suffix(ring string) string {
	name := fmt.Sprintf("clusterring-%s-%s", Hash(ring), ring)
	return name[:min(len(name), longest)]
}
