package sidecar

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/filaq/fila/wire"
)

// Config is everything that `fila serve` can be told. The koanf tags are the
// keys of config.toml; docs/configuration.md explains each. Times ending in Ms
// are milliseconds, sizes are bytes.
type Config struct {
	DataDir        string       `koanf:"data_dir"`         // directory of the store; created if missing
	DrainTimeoutMs int64        `koanf:"drain_timeout_ms"` // how long a shutdown waits for leases to settle
	Log            LogConfig    `koanf:"log"`
	NATS           NATSConfig   `koanf:"nats"`
	HTTP           HTTPConfig   `koanf:"http"`
	Lua            LuaConfig    `koanf:"lua"`
	Store          StoreConfig  `koanf:"store"`
	Limits         LimitsConfig `koanf:"limits"`

	// Queues are declared in the file and win over stored settings at every
	// start. Script files are resolved by then: settings carry text only.
	Queues []wire.QueueSettings `koanf:"queue"`

	// The rules: what can be changed while fila runs, by a reload.
	Throttles       []ThrottleTable `koanf:"throttle"`
	Circuits        []CircuitTable  `koanf:"circuit"`
	CircuitDefaults CircuitDefaults `koanf:"circuit_defaults"`
	RetryPolicies   []RetryPolicy   `koanf:"retry_policy"`
	ErrorRules      []ErrorRule     `koanf:"error_rule"`

	// Reload reads the configuration again from where this one came from. Nil:
	// there is nothing to read. It may be called from any goroutine.
	Reload func() (Config, error) `koanf:"-"`
}

// LogConfig says what is logged and how.
type LogConfig struct {
	Level  string `koanf:"level"`  // debug, info, warn or error
	Format string `koanf:"format"` // text or json
}

// NATSConfig says how to reach NATS. With an empty URL fila embeds a server.
type NATSConfig struct {
	URL      string `koanf:"url"` // one or several, separated by commas
	Creds    string `koanf:"creds"`
	NKey     string `koanf:"nkey"` // file with the seed
	User     string `koanf:"user"`
	Password string `koanf:"password"`
	Token    string `koanf:"token"`
	// Context names a context of the nats CLI. The configuration loader fills
	// the other fields from it; sidecar itself never reads context files.
	Context       string         `koanf:"context"`
	SubjectPrefix string         `koanf:"subject_prefix"`
	Name          string         `koanf:"name"` // connection name, as the server lists it
	TLS           TLSConfig      `koanf:"tls"`
	Embedded      EmbeddedConfig `koanf:"embedded"`
}

// TLSConfig names PEM files. Cert and Key go together.
type TLSConfig struct {
	CA   string `koanf:"ca"`
	Cert string `koanf:"cert"`
	Key  string `koanf:"key"`
}

// EmbeddedConfig is the NATS server that fila runs itself when NATSConfig.URL
// is empty. Without user and token anybody who reaches the port is let in.
type EmbeddedConfig struct {
	Host       string `koanf:"host"`
	Port       int    `koanf:"port"`        // -1 takes any free port
	MaxPayload int64  `koanf:"max_payload"` // largest message, payload and headers
	User       string `koanf:"user"`
	Password   string `koanf:"password"`
	Token      string `koanf:"token"`
}

// HTTPConfig is the listener of health checks and metrics.
type HTTPConfig struct {
	Addr  string `koanf:"addr"`  // host:port; empty is off
	Pprof bool   `koanf:"pprof"` // serve /debug/pprof
}

// LuaConfig holds the limits of hooks of queues that set none themselves.
type LuaConfig struct {
	DefaultTimeoutMs         int64 `koanf:"default_timeout_ms"`
	DefaultMemoryLimitBytes  int64 `koanf:"default_memory_limit_bytes"`
	CircuitBreakerThreshold  int64 `koanf:"circuit_breaker_threshold"`
	CircuitBreakerCooldownMs int64 `koanf:"circuit_breaker_cooldown_ms"`
}

// StoreConfig tunes the store.
type StoreConfig struct {
	ReadCacheBytes int64 `koanf:"read_cache_bytes"` // payloads kept in memory to be delivered without a read
}

// LimitsConfig bounds what fila holds in memory.
type LimitsConfig struct {
	MaxUncommittedBytes int64 `koanf:"max_uncommitted_bytes"` // enqueues waiting for the disk; beyond it 429
}

// Default returns the configuration of a start without file, environment and
// flags. config.toml in the repository shows the same values.
func Default() Config {
	return Config{
		DataDir:        "data",
		DrainTimeoutMs: 10_000,
		Log:            LogConfig{Level: "info", Format: "text"},
		NATS: NATSConfig{
			SubjectPrefix: "fila",
			Name:          "fila",
			Embedded:      EmbeddedConfig{Host: "127.0.0.1", Port: 4222, MaxPayload: 1 << 20},
		},
		HTTP: HTTPConfig{Addr: "127.0.0.1:8222"},
		Lua: LuaConfig{
			DefaultTimeoutMs:         10,
			DefaultMemoryLimitBytes:  1 << 20,
			CircuitBreakerThreshold:  3,
			CircuitBreakerCooldownMs: 10_000,
		},
		Store:           StoreConfig{ReadCacheBytes: 64 << 20},
		Limits:          LimitsConfig{MaxUncommittedBytes: 256 << 20},
		CircuitDefaults: defaultCircuits(),
	}
}

// StorePath returns the path of the store's file.
func (c *Config) StorePath() string { return filepath.Join(c.DataDir, "fila.db") }

// Validate returns the first value that cannot work, as one line that names
// the key, the value and what is allowed. Secrets are not printed.
func (c *Config) Validate() error {
	checks := []func() error{
		func() error { return required("data_dir", c.DataDir, "a directory") },
		func() error { return within("drain_timeout_ms", c.DrainTimeoutMs, 0, 3_600_000) },
		func() error { return oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error") },
		func() error { return oneOf("log.format", c.Log.Format, "text", "json") },
		c.NATS.validate,
		func() error { return address("http.addr", c.HTTP.Addr) },
		func() error { return within("lua.default_timeout_ms", c.Lua.DefaultTimeoutMs, 1, wire.MaxLuaTimeoutMs) },
		func() error {
			return within("lua.default_memory_limit_bytes", c.Lua.DefaultMemoryLimitBytes, wire.MinLuaMemoryBytes, wire.MaxLuaMemoryBytes)
		},
		func() error {
			return within("lua.circuit_breaker_threshold", c.Lua.CircuitBreakerThreshold, 1, 1_000_000)
		},
		func() error {
			return within("lua.circuit_breaker_cooldown_ms", c.Lua.CircuitBreakerCooldownMs, 1, wire.MaxSettingMs)
		},
		func() error { return within("store.read_cache_bytes", c.Store.ReadCacheBytes, 0, 1<<40) },
		func() error {
			return within("limits.max_uncommitted_bytes", c.Limits.MaxUncommittedBytes, 1<<20, 1<<40)
		},
		c.validateQueues,
		c.validateThrottles,
		c.validateCircuits,
		c.validateRules,
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) validateQueues() error {
	seen := make(map[string]bool, len(c.Queues))
	for i := range c.Queues {
		q := &c.Queues[i]
		if q.Name == "" {
			return fmt.Errorf("queue[%d].name is missing: every [[queue]] needs one", i)
		}
		if seen[q.Name] {
			return fmt.Errorf("queue %q is declared twice: one [[queue]] per name is allowed", q.Name)
		}
		seen[q.Name] = true
		if err := q.Validate(); err != nil {
			return fmt.Errorf("queue %q: %w", q.Name, err)
		}
	}
	return nil
}

func (n *NATSConfig) validate() error {
	if err := n.validateURL(); err != nil {
		return err
	}
	if err := n.validateLogin(); err != nil {
		return err
	}
	if _, err := wire.NewSubjects(n.SubjectPrefix); err != nil {
		return fmt.Errorf("nats.subject_prefix = %q: %w", n.SubjectPrefix, err)
	}
	if n.URL != "" {
		return nil
	}
	return n.Embedded.validate()
}

func (n *NATSConfig) validateURL() error {
	if n.URL == "" {
		return nil
	}
	const allowed = "allowed is nats://host:port (or tls, ws, wss), several separated by commas"
	for one := range strings.SplitSeq(n.URL, ",") {
		one = strings.TrimSpace(one)
		if !strings.Contains(one, "://") {
			one = "nats://" + one
		}
		u, err := url.Parse(one)
		if err != nil { // its text would show a password in the URL
			return fmt.Errorf("nats.url cannot be read: %s", allowed)
		}
		if u.Hostname() == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
			return fmt.Errorf("nats.url = %q: %s", u.Redacted(), allowed)
		}
	}
	return nil
}

func (n *NATSConfig) validateLogin() error {
	var logins []string
	for _, login := range []struct{ key, value string }{
		{"nats.creds", n.Creds}, {"nats.nkey", n.NKey}, {"nats.user", n.User}, {"nats.token", n.Token},
	} {
		if login.value != "" {
			logins = append(logins, login.key)
		}
	}
	switch {
	case len(logins) > 1:
		return fmt.Errorf("%s are both set: one way to log in is allowed", strings.Join(logins, " and "))
	case n.Password != "" && n.User == "":
		return fmt.Errorf("nats.password is set without nats.user: they go together")
	case (n.TLS.Cert == "") != (n.TLS.Key == ""):
		return fmt.Errorf("nats.tls.cert = %q, nats.tls.key = %q: they go together", n.TLS.Cert, n.TLS.Key)
	case n.URL == "" && n.Context == "" && (len(logins) > 0 || n.TLS != TLSConfig{}):
		key := "nats.tls"
		if len(logins) > 0 {
			key = logins[0]
		}
		return fmt.Errorf("%s is set without nats.url: it is for an external NATS server; nats.embedded.user and token guard the embedded one", key)
	}
	return nil
}

func (e *EmbeddedConfig) validate() error {
	if err := required("nats.embedded.host", e.Host, "an address to listen on"); err != nil {
		return err
	}
	if e.Port != -1 && (e.Port < 1 || e.Port > 65_535) {
		return fmt.Errorf("nats.embedded.port = %d: allowed is 1 to 65535, or -1 for any free port", e.Port)
	}
	// Deliveries need 8 KiB for headers, so less than that leaves no message.
	if err := within("nats.embedded.max_payload", e.MaxPayload, 16<<10, 64<<20); err != nil {
		return err
	}
	switch {
	case e.Token != "" && e.User != "":
		return fmt.Errorf("nats.embedded.user and nats.embedded.token are both set: one way to log in is allowed")
	case (e.User == "") != (e.Password == ""):
		return fmt.Errorf("nats.embedded.user and nats.embedded.password go together")
	}
	return nil
}

func within(key string, v, low, high int64) error {
	if v < low || v > high {
		return fmt.Errorf("%s = %d: allowed is %d to %d", key, v, low, high)
	}
	return nil
}

func oneOf(key, v string, allowed ...string) error {
	if !slices.Contains(allowed, v) {
		return fmt.Errorf("%s = %q: allowed is %s", key, v, strings.Join(allowed, ", "))
	}
	return nil
}

func required(key, v, what string) error {
	if v == "" {
		return fmt.Errorf("%s = \"\": allowed is %s", key, what)
	}
	return nil
}

func address(key, v string) error {
	if v == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(v)
	if n, bad := strconv.Atoi(port); err != nil || bad != nil || n < 0 || n > 65_535 {
		return fmt.Errorf("%s = %q: allowed is host:port (port 0 takes any free one), or empty for off", key, v)
	}
	return nil
}
