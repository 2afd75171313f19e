// Command etcd is etcd's own main: `go build` can name it only as a package of this module, because the
// replace lines of k8s.io/kubernetes rule out `go install <package>@<version>`.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
