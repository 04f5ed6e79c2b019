// Command fila is a scheduling sidecar for NATS.
package main

import (
	"os"

	"github.com/filaq/fila/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
