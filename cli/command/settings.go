package command

import (
	"github.com/spf13/pflag"

	"github.com/filaq/fila/sidecar/config"
)

// ConfigFiles are tried in this order where no file is named.
var ConfigFiles = []string{"config.toml", "/etc/fila/config.toml"}

// NATSKeys says which configuration key a flag sets with which other commands find NATS,
// for those that go by the configuration of fila serve.
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

// Settings are what the flags that were given set of the configuration.
func Settings(flags *pflag.FlagSet, keys map[string]string) (given []config.Setting) {
	flags.Visit(func(f *pflag.Flag) {
		if key, ok := keys[f.Name]; ok {
			given = append(given, config.Setting{Name: "--" + f.Name, Key: key, Text: f.Value.String()})
		}
	})
	return given
}
