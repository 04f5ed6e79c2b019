package cli

import (
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/sidecar/config"
)

// natsContexts are the contexts of the nats CLI on this machine.
type natsContexts struct{}

// Selected returns the name of the context that is used where none is named, ""
// if there is none.
func (natsContexts) Selected() (string, error) { return config.SelectedNATSContext() }

// Read reads a context by name, or by the path of its file.
func (natsContexts) Read(name string) (command.Login, error) {
	c, err := config.ReadNATSContext(name)
	if err != nil {
		return command.Login{}, err
	}
	return command.Login{
		URL: c.URL, Creds: c.Creds, NKey: c.NKey, User: c.User, Password: c.Password, Token: c.Token,
		CA: c.CA, Cert: c.Cert, Key: c.Key, InboxPrefix: c.InboxPrefix, TLSFirst: c.TLSFirst,
	}, nil
}

// Names returns the names of all contexts.
func (natsContexts) Names() []string { return config.NATSContexts() }
