package cli

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/filaq/fila/cli/command"
)

// natsContexts are the contexts of the nats CLI on this machine.
type natsContexts struct{}

// Selected returns the name of the context that is used where none is named, ""
// if there is none.
func (natsContexts) Selected() (string, error) { return selectedNATSContext() }

// Read reads a context by name, or by the path of its file.
func (natsContexts) Read(name string) (command.Login, error) {
	c, err := readNATSContext(name)
	if err != nil {
		return command.Login{}, err
	}
	return command.Login{
		URL: c.URL, Creds: c.Creds, NKey: c.NKey, User: c.User, Password: c.Password, Token: c.Token,
		CA: c.CA, Cert: c.Cert, Key: c.Key, InboxPrefix: c.InboxPrefix, TLSFirst: c.TLSFirst,
	}, nil
}

// Names returns the names of all contexts.
func (natsContexts) Names() []string {
	dir, err := natsConfigDir()
	if err != nil {
		return nil
	}
	entries, _ := os.ReadDir(filepath.Join(dir, "context")) // without it there are none
	var names []string
	for _, entry := range entries {
		if name, ok := strings.CutSuffix(entry.Name(), ".json"); ok {
			names = append(names, name)
		}
	}
	return names
}
