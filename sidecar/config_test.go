package sidecar

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

func TestDefaultConfigIsValid(t *testing.T) {
	c := Default()
	require.NoError(t, c.Validate())
}

// The values that the specification fixes.
func TestDefaultConfigHoldsTheSpecification(t *testing.T) {
	c := Default()
	require.EqualValues(t, 10, c.Lua.DefaultTimeoutMs)
	require.EqualValues(t, 1_048_576, c.Lua.DefaultMemoryLimitBytes)
	require.EqualValues(t, 3, c.Lua.CircuitBreakerThreshold)
	require.EqualValues(t, 10_000, c.Lua.CircuitBreakerCooldownMs)
	require.EqualValues(t, 10_000, c.DrainTimeoutMs)
	require.Equal(t, "data", c.DataDir)
	require.Equal(t, "fila", c.NATS.SubjectPrefix)
	require.Equal(t, "127.0.0.1", c.NATS.Embedded.Host)
	require.Equal(t, 4222, c.NATS.Embedded.Port)
	require.EqualValues(t, 1<<20, c.NATS.Embedded.MaxPayload)
	require.Equal(t, "127.0.0.1:8222", c.HTTP.Addr)
	require.EqualValues(t, 256<<20, c.Limits.MaxUncommittedBytes)
	require.Equal(t, "data/fila.db", c.StorePath())
}

func TestConfigValidate(t *testing.T) {
	external := func(c *Config) { c.NATS.URL = "nats://nats:4222" }
	cases := []struct {
		name   string
		change func(*Config)
		want   string // empty: allowed
	}{
		{"no data directory", func(c *Config) { c.DataDir = "" }, `data_dir = "": allowed is a directory`},
		{"negative drain", func(c *Config) { c.DrainTimeoutMs = -1 }, "drain_timeout_ms = -1: allowed is 0 to 3600000"},
		{"no drain", func(c *Config) { c.DrainTimeoutMs = 0 }, ""},
		{"level", func(c *Config) { c.Log.Level = "loud" }, `log.level = "loud": allowed is debug, info, warn, error`},
		{"format", func(c *Config) { c.Log.Format = "xml" }, `log.format = "xml": allowed is text, json`},
		{"scheme", func(c *Config) { c.NATS.URL = "http://x:1" }, `nats.url = "http://x:1": allowed is nats://host:port`},
		{"no host", func(c *Config) { c.NATS.URL = "nats://:4222" }, `nats.url = "nats://:4222": allowed`},
		{"empty in the list", func(c *Config) { c.NATS.URL = "nats://a:1,," }, `nats.url = "nats:": allowed`},
		{"several", func(c *Config) { c.NATS.URL = "nats://a:1, tls://b:2,c:4222,127.0.0.1:4222,localhost" }, ""},
		{"password not shown", func(c *Config) { c.NATS.URL = "http://me:secret@x:1" }, `nats.url = "http://me:xxxxx@x:1": allowed`},
		{"unreadable", func(c *Config) { c.NATS.URL = "nats://me:sec%zzret@x:1" }, "nats.url cannot be read: allowed"},
		{"two logins", func(c *Config) { external(c); c.NATS.User, c.NATS.Token = "u", "t" }, "nats.user and nats.token are both set"},
		{"password alone", func(c *Config) { external(c); c.NATS.Password = "secret" }, "nats.password is set without nats.user"},
		{"half a key pair", func(c *Config) { external(c); c.NATS.TLS.Cert = "c.pem" }, `nats.tls.cert = "c.pem", nats.tls.key = "": they go together`},
		{"login without url", func(c *Config) { c.NATS.Creds = "a.creds" }, "nats.creds is set without nats.url"},
		{"ca without url", func(c *Config) { c.NATS.TLS.CA = "ca.pem" }, "nats.tls is set without nats.url"},
		{"login with url", func(c *Config) { external(c); c.NATS.Creds = "a.creds" }, ""},
		{"prefix", func(c *Config) { c.NATS.SubjectPrefix = "a.*" }, `nats.subject_prefix = "a.*":`},
		{"host", func(c *Config) { c.NATS.Embedded.Host = "" }, `nats.embedded.host = "": allowed`},
		{"port 0", func(c *Config) { c.NATS.Embedded.Port = 0 }, "nats.embedded.port = 0: allowed is 1 to 65535, or -1"},
		{"port too high", func(c *Config) { c.NATS.Embedded.Port = 65_536 }, "nats.embedded.port = 65536"},
		{"any port", func(c *Config) { c.NATS.Embedded.Port = -1 }, ""},
		{"embedded port is unused with a url", func(c *Config) { external(c); c.NATS.Embedded.Port = 0 }, ""},
		{"payload", func(c *Config) { c.NATS.Embedded.MaxPayload = 8192 }, "nats.embedded.max_payload = 8192: allowed is 16384 to 67108864"},
		{"embedded two logins", func(c *Config) {
			c.NATS.Embedded.User, c.NATS.Embedded.Password, c.NATS.Embedded.Token = "u", "p", "t"
		}, "nats.embedded.user and nats.embedded.token are both set"},
		{"embedded user alone", func(c *Config) { c.NATS.Embedded.User = "u" }, "nats.embedded.user and nats.embedded.password go together"},
		{"http", func(c *Config) { c.HTTP.Addr = "8222" }, `http.addr = "8222": allowed is host:port`},
		{"http name of a port", func(c *Config) { c.HTTP.Addr = "x:http" }, `http.addr = "x:http": allowed`},
		{"http off", func(c *Config) { c.HTTP.Addr = "" }, ""},
		{"http any port", func(c *Config) { c.HTTP.Addr = ":0" }, ""},
		{"lua timeout", func(c *Config) { c.Lua.DefaultTimeoutMs = 0 }, "lua.default_timeout_ms = 0: allowed is 1 to"},
		{"lua memory", func(c *Config) { c.Lua.DefaultMemoryLimitBytes = 1 }, "lua.default_memory_limit_bytes = 1: allowed is"},
		{"lua threshold", func(c *Config) { c.Lua.CircuitBreakerThreshold = 0 }, "lua.circuit_breaker_threshold = 0: allowed is 1 to"},
		{"lua cooldown", func(c *Config) { c.Lua.CircuitBreakerCooldownMs = 0 }, "lua.circuit_breaker_cooldown_ms = 0: allowed is 1 to"},
		{"cache", func(c *Config) { c.Store.ReadCacheBytes = -1 }, "store.read_cache_bytes = -1: allowed is 0 to"},
		{"uncommitted", func(c *Config) { c.Limits.MaxUncommittedBytes = 0 }, "limits.max_uncommitted_bytes = 0: allowed is 1048576 to"},
		{"queue without name", func(c *Config) { c.Queues = []wire.QueueSettings{{}} }, "queue[0].name is missing"},
		{"queue twice", func(c *Config) {
			c.Queues = []wire.QueueSettings{wire.DefaultQueueSettings("a"), wire.DefaultQueueSettings("a")}
		}, `queue "a" is declared twice`},
		{"queue named as a dlq", func(c *Config) {
			c.Queues = []wire.QueueSettings{wire.DefaultQueueSettings("a.dlq")}
		}, `queue "a.dlq": name is "a.dlq": names that end in .dlq are reserved`},
		{"queue with an unread file", func(c *Config) {
			q := wire.DefaultQueueSettings("a")
			q.OnEnqueueFile = "x.lua"
			c.Queues = []wire.QueueSettings{q}
		}, `queue "a": on_enqueue_file`},
		{"queue with a bad value", func(c *Config) {
			q := wire.DefaultQueueSettings("a")
			q.VisibilityTimeoutMs = -5
			c.Queues = []wire.QueueSettings{q}
		}, `queue "a": visibility_timeout_ms`},
		{"queue", func(c *Config) { c.Queues = []wire.QueueSettings{wire.DefaultQueueSettings("a")} }, ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := Default()
			tc.change(&c)
			err := c.Validate()
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
			require.NotContains(t, err.Error(), "\n")
			require.NotContains(t, err.Error(), "secret")
		})
	}
}
