// Command external-secrets is the published command, whose module takes part of its dependencies from elsewhere: `go install` refuses it.
package main

import "github.com/external-secrets/external-secrets/cmd/controller"

func main() {
	controller.Execute()
}
