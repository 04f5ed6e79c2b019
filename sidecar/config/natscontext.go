package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// defaultURL is where a context without a URL means, as in the nats CLI.
const defaultURL = "nats://127.0.0.1:4222"

// NATSContext is a context file of the nats CLI, as its ADR-21 describes it.
// Fields that have no meaning for fila (JetStream domains and the like) are
// left out.
type NATSContext struct {
	URL         string `json:"url"`
	Token       string `json:"token"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Creds       string `json:"creds"` // path, as those below
	NKey        string `json:"nkey"`
	Cert        string `json:"cert"`
	Key         string `json:"key"`
	CA          string `json:"ca"`
	InboxPrefix string `json:"inbox_prefix"`
	TLSFirst    bool   `json:"tls_first"`
}

// ReadNATSContext reads a context by name, or by the path of its file. A context
// that needs what fila does not support is refused.
func ReadNATSContext(name string) (*NATSContext, error) {
	path := name
	if !filepath.IsAbs(name) && !strings.HasSuffix(name, ".json") {
		if name == "" || strings.Contains(name, "..") || strings.ContainsAny(name, `/\`) {
			return nil, fmt.Errorf("NATS context %q: not a name of a context", name)
		}
		dir, err := natsDir()
		if err != nil {
			return nil, err
		}
		path = filepath.Join(dir, "context", name+".json")
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("NATS context %q does not exist: there is no %s", name, path)
	}
	if err != nil {
		return nil, fmt.Errorf("NATS context %q: %s: %w", name, path, pathCause(err))
	}
	var c struct {
		NATSContext
		NSC              string `json:"nsc"`
		UserJWT          string `json:"user_jwt"`
		SocksProxy       string `json:"socks_proxy"`
		WindowsCertStore string `json:"windows_cert_store"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("NATS context %q: %s: %w", name, path, err)
	}
	for _, unsupported := range []struct{ key, value string }{
		{"nsc", c.NSC},
		{"user_jwt", c.UserJWT},
		{"socks_proxy", c.SocksProxy},
		{"windows_cert_store", c.WindowsCertStore},
	} {
		if unsupported.value != "" {
			return nil, fmt.Errorf("NATS context %q uses %s, which fila does not support", name, unsupported.key)
		}
	}
	c.Creds = os.ExpandEnv(c.Creds)
	for _, path := range []*string{&c.Creds, &c.NKey, &c.Cert, &c.Key, &c.CA} {
		*path = expandHome(*path)
	}
	return &c.NATSContext, nil
}

// SelectedNATSContext returns the name that `nats context select` stored, or
// "" if there is none.
func SelectedNATSContext() (string, error) {
	dir, err := natsDir()
	if err != nil {
		return "", nil // no home directory: nothing is selected
	}
	data, err := os.ReadFile(filepath.Join(dir, "context.txt"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("selected NATS context: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// NATSContexts returns the names of all contexts on this machine, in order.
func NATSContexts() []string {
	dir, err := natsDir()
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

func natsDir() (string, error) {
	if dir := os.Getenv("XDG_CONFIG_HOME"); dir != "" {
		return filepath.Join(dir, "nats"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("NATS contexts: %w", err)
	}
	return filepath.Join(home, ".config", "nats"), nil
}

func expandHome(path string) string {
	rest, ok := strings.CutPrefix(path, "~")
	if !ok || rest != "" && rest[0] != filepath.Separator {
		return path
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return path
	}
	return filepath.Join(home, rest)
}

// applyContext fills what the configuration leaves open from the context that it
// names. A way to log in that the configuration sets itself replaces the
// context's, whatever its kind.
func (n *NATSConfig) applyContext() error {
	if n.Context == "" {
		return nil
	}
	c, err := ReadNATSContext(n.Context)
	if err != nil {
		return fmt.Errorf("nats.context: %w", err)
	}
	if c.TLSFirst {
		return fmt.Errorf("nats.context: NATS context %q uses tls_first, which fila serve does not support", n.Context)
	}
	n.URL = cmp.Or(n.URL, c.URL, defaultURL)
	if n.Creds == "" && n.NKey == "" && n.User == "" && n.Token == "" {
		n.Creds, n.NKey, n.User, n.Password, n.Token = c.Creds, c.NKey, c.User, c.Password, c.Token
	}
	if (n.TLS == TLSConfig{}) {
		n.TLS = TLSConfig{CA: c.CA, Cert: c.Cert, Key: c.Key}
	}
	return nil
}
