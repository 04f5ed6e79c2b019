package command

import (
	"github.com/spf13/pflag"

	"github.com/filaq/fila/sidecar/config"
)

// ConfigFiles are the default configuration files, in this order.
var ConfigFiles = []string{"config.toml", "/etc/fila/config.toml"}

// NATSKeys maps the flags that connect to NATS to configuration keys, for commands that use the
// configuration of fila serve.
var NATSKeys = map[string]string{
	"server":   "nats.url",
	"context":  "nats.context",
	"creds":    "nats.creds",
	"nkey":     "nats.nkey",
	"user":     "nats.user",
	"password": "nats.password",
	"token":    "nats.token",
	"tlsca":    "nats.tls.ca",
	"tlscert":  "nats.tls.cert",
	"tlskey":   "nats.tls.key",
}

// Settings returns the configuration that the given flags set.
func Settings(flags *pflag.FlagSet, keys map[string]string) (given []config.Setting) {
	flags.Visit(func(f *pflag.Flag) {
		if key, ok := keys[f.Name]; ok {
			given = append(given, config.Setting{Name: "--" + f.Name, Key: key, Text: f.Value.String()})
		}
	})
	return given
}
