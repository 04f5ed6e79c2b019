package e2e

import (
	"fmt"
	"os"

	"github.com/nats-io/nats-server/v2/server"
)

// natsConfigEnv names the configuration file of a NATS server that is a helper process.
const natsConfigEnv = "FILA_E2E_NATS_CONFIG"

// natsProcess runs a NATS server until it is killed.
func natsProcess() {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	opts, err := server.ProcessConfigFile(os.Getenv(natsConfigEnv))
	fail(err)
	s, err := server.NewServer(opts)
	fail(err)
	s.ConfigureLogger()
	s.Start()
	s.WaitForShutdown()
}
