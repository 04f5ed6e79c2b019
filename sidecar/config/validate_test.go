package config

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/wire"
)

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
	require.Equal(t, CircuitLimits{
		Threshold: 10, CooldownMs: 300_000, HalfOpenMaxCalls: 3, HalfOpenSuccesses: 1, FailureWindowMs: 60_000,
	}, c.CircuitDefaults)
	require.Equal(t, "data/fila.db", c.StorePath())
	require.Equal(t, "data", c.JetStreamPath())
	c.NATS.Embedded.JetStreamDir = "elsewhere"
	require.Equal(t, "elsewhere", c.JetStreamPath())
}

// validateCase is a change of the defaults and its error.
type validateCase struct {
	change func(*Config)
	want   string // empty: allowed
}

func (tc validateCase) run(t *testing.T) {
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
}

func TestSharedValidate(t *testing.T) {
	for name, tc := range map[string]validateCase{
		"no JetStream":     {func(c *Config) { c.Shared.Enabled = true }, "set nats.embedded.jetstream = true, or nats.url"},
		"embedded":         {func(c *Config) { c.Shared.Enabled, c.NATS.Embedded.JetStream = true, true }, ""},
		"external":         {func(c *Config) { c.Shared.Enabled, c.NATS.URL = true, "nats://nats:4222" }, ""},
		"no bucket":        {func(c *Config) { c.Shared.Bucket = "" }, `shared.bucket = ""`},
		"bucket":           {func(c *Config) { c.Shared.Bucket = "a.b" }, `shared.bucket = "a.b": allowed are letters, digits, _ and -`},
		"no replicas":      {func(c *Config) { c.Shared.Replicas = 0 }, "shared.replicas = 0: allowed is 1 to 5"},
		"replicas":         {func(c *Config) { c.Shared.Replicas = 6 }, "shared.replicas = 6"},
		"instance":         {func(c *Config) { c.Shared.Instance = "a\tb" }, `shared.instance = "a\tb"`},
		"long instance":    {func(c *Config) { c.Shared.Instance = strings.Repeat("a", 129) }, "at most 128 bytes"},
		"nothing":          {func(c *Config) { c.Shared.Keys = nil }, ""},
		"one and a prefix": {func(c *Config) { c.Shared.Keys = []string{"circuit:stripe", "circuit:vendor:*"} }, ""},
		"throttles":        {func(c *Config) { c.Shared.Keys = []string{"throttle:*", "throttle:vendor:x"} }, ""},
		"throttle of none": {func(c *Config) { c.Shared.Keys = []string{"throttle:"} }, `shared.keys has "throttle:": allowed are circuit:KEY`},
		"another kind":     {func(c *Config) { c.Shared.Keys = []string{"queue:x"} }, `shared.keys has "queue:x": allowed are circuit:KEY`},
		"star inside":      {func(c *Config) { c.Shared.Keys = []string{"circuit:a*b"} }, `shared.keys has "circuit:a*b"`},
		"no key":           {func(c *Config) { c.Shared.Keys = []string{"circuit:"} }, `shared.keys has "circuit:"`},
	} {
		t.Run(name, tc.run)
	}
}

func TestGuardPrefixValidate(t *testing.T) {
	set := func(own, common string) func(*Config) {
		return func(c *Config) {
			c.Shared.Enabled, c.NATS.Embedded.JetStream = true, true
			c.NATS.SubjectPrefix, c.Shared.GuardPrefix = own, common
		}
	}
	for name, tc := range map[string]validateCase{
		"beside":     {set("fila", "acme"), ""},
		"above":      {set("acme.eu", "acme"), ""},
		"similar":    {set("acme", "acme-guard"), ""},
		"the same":   {set("acme", "acme"), `shared.guard_prefix = "acme": its subjects acme.guard.> and acme.node.> would be below nats.subject_prefix = "acme"`},
		"below":      {set("acme", "acme.enqueue"), `would be below nats.subject_prefix = "acme"`},
		"its guard":  {set("acme.guard", "acme"), `would be below nats.subject_prefix = "acme.guard"`},
		"its nodes":  {set("acme.node.x", "acme"), `would be below nats.subject_prefix = "acme.node.x"`},
		"wildcard":   {set("fila", "a.*"), `shared.guard_prefix = "a.*": subject prefix "a.*"`},
		"not shared": {func(c *Config) { c.Shared.GuardPrefix = "acme" }, `shared.guard_prefix = "acme": it needs shared.enabled = true`},
		"replies": {func(c *Config) {
			set("fila", "acme")(c)
			c.NATS.ReplyPrefixes = []string{"acme."}
		}, `nats.reply_prefixes beside shared.guard_prefix: reply prefix "acme."`},
	} {
		t.Run(name, tc.run)
	}
}

func TestEmbeddedClusterValidate(t *testing.T) {
	member := func(change func(*EmbeddedConfig)) func(*Config) {
		return func(c *Config) {
			e := &c.NATS.Embedded
			e.JetStream, e.Cluster.Name, e.Cluster.Routes = true, "fila", []string{"a:6222", "10.0.0.2:6222", "[::1]:6222"}
			change(e)
		}
	}
	for name, tc := range map[string]validateCase{
		"a member":            {member(func(*EmbeddedConfig) {}), ""},
		"without JetStream":   {member(func(e *EmbeddedConfig) { e.JetStream = false }), ""},
		"routes alone":        {func(c *Config) { c.NATS.Embedded.Cluster.Routes = []string{"a:6222"} }, "nats.embedded.cluster.routes is set without nats.embedded.cluster.name"},
		"no routes":           {member(func(e *EmbeddedConfig) { e.Cluster.Routes = nil }), "nats.embedded.cluster.routes = []: allowed are host:port"},
		"route without port":  {member(func(e *EmbeddedConfig) { e.Cluster.Routes[1] = "b" }), `nats.embedded.cluster.routes = "b": allowed is host:port`},
		"route is a URL":      {member(func(e *EmbeddedConfig) { e.Cluster.Routes[1] = "nats://me:secret@b:6222" }), `nats.embedded.cluster.routes = "...@b:6222": allowed is host:port`},
		"name":                {member(func(e *EmbeddedConfig) { e.Cluster.Name = "a b" }), `nats.embedded.cluster.name = "a b": allowed are letters, digits, _ and -`},
		"server name":         {member(func(e *EmbeddedConfig) { e.Cluster.ServerName = "a b" }), `nats.embedded.cluster.server_name = "a b"`},
		"free port":           {member(func(e *EmbeddedConfig) { e.Cluster.Listen = "127.0.0.1:0" }), `nats.embedded.cluster.listen = "127.0.0.1:0": allowed is host:port, with a port from 1 to 65535`},
		"user alone":          {member(func(e *EmbeddedConfig) { e.Cluster.User = "route" }), "nats.embedded.cluster.user and nats.embedded.cluster.password go together"},
		"open beside guarded": {member(func(e *EmbeddedConfig) { e.Token = "secret" }), "nats.embedded.cluster.user is missing"},
		"certificates alone":  {member(func(e *EmbeddedConfig) { e.TLS = TLSConfig{"a", "c", "k"} }), "nats.embedded.cluster.user is missing"},
		"both guarded":        {member(func(e *EmbeddedConfig) { e.Token, e.Cluster.User, e.Cluster.Password = "secret", "route", "secret" }), ""},
		"sync":                {member(func(e *EmbeddedConfig) { e.JetStreamSync = "never" }), `nats.embedded.jetstream_sync = "never": allowed is always, interval`},
		"sync of nothing":     {func(c *Config) { c.NATS.Embedded.JetStreamSync = "always" }, `nats.embedded.jetstream_sync = "always": it needs nats.embedded.jetstream`},
	} {
		t.Run(name, tc.run)
	}
}

func TestClusterValidate(t *testing.T) {
	node := func(change func(*Config)) func(*Config) {
		return func(c *Config) {
			c.Cluster.Enabled, c.NATS.URL = true, "nats://nats:4222"
			change(c)
		}
	}
	embedded := func(change func(*Config)) func(*Config) {
		return func(c *Config) {
			e := &c.NATS.Embedded
			c.Cluster.Enabled, e.JetStream, e.Cluster.Name, e.Cluster.Routes = true, true, "fila", []string{"a:6222"}
			change(c)
		}
	}
	for name, tc := range map[string]validateCase{
		"external":            {node(func(*Config) {}), ""},
		"embedded":            {embedded(func(*Config) {}), ""},
		"no JetStream":        {embedded(func(c *Config) { c.NATS.Embedded.JetStream = false }), "cluster.enabled = true: the embedded NATS server has no JetStream"},
		"embedded, but alone": {embedded(func(c *Config) { c.NATS.Embedded.Cluster = EmbeddedCluster{} }), "cluster.replicas = 3: the embedded NATS server is alone; set nats.embedded.cluster.name"},
		"one, to try": {embedded(func(c *Config) {
			c.NATS.Embedded.Cluster = EmbeddedCluster{}
			c.Cluster.Replicas, c.Cluster.AllowR1 = 1, true
		}), ""},
		"one replica":            {node(func(c *Config) { c.Cluster.Replicas = 1 }), "cluster.replicas = 1: with fewer than 3 the loss of a server can lose confirmed messages; set cluster.allow_r1 = true"},
		"two replicas":           {node(func(c *Config) { c.Cluster.Replicas = 2 }), "cluster.replicas = 2"},
		"too many replicas":      {node(func(c *Config) { c.Cluster.Replicas = 6 }), "cluster.replicas = 6: allowed is 1 to 5"},
		"no shards":              {node(func(c *Config) { c.Cluster.Shards = 0 }), "cluster.shards = 0: allowed is 1 to 256"},
		"too many shards":        {node(func(c *Config) { c.Cluster.Shards = 257 }), "cluster.shards = 257"},
		"old NATS":               {node(func(c *Config) { c.Cluster.AllowNATS = []string{"2.12.6", "2.14.0-RC.1"} }), ""},
		"no version":             {node(func(c *Config) { c.Cluster.AllowNATS = []string{"2.12"} }), `cluster.allow_nats has "2.12": allowed are versions of nats-server, such as 2.12.6`},
		"requires nothing":       {node(func(c *Config) { c.Cluster.Require = nil }), ""},
		"requires more":          {node(func(c *Config) { c.Cluster.Require = []string{"sync", "luck"} }), `cluster.require = "luck": allowed`},
		"monitoring":             {node(func(c *Config) { c.Cluster.Monitoring = []string{"http://n0:8222", "https://n1/x"} }), ""},
		"no monitoring":          {node(func(c *Config) { c.Cluster.Monitoring = []string{"n0:8222"} }), "cluster.monitoring: entry 1 is not the URL"},
		"failover too soon":      {node(func(c *Config) { c.Cluster.FailoverMs = 2499 }), "cluster.failover_ms = 2499: allowed is 2500 to 60000"},
		"name":                   {node(func(c *Config) { c.Cluster.Name = "a.b" }), `cluster.name = "a.b": allowed are letters, digits, _ and -`},
		"node":                   {node(func(c *Config) { c.Cluster.Node = "a b" }), `cluster.node = "a b": allowed are letters, digits, _ and -, at most 128, or empty`},
		"checked when it is off": {func(c *Config) { c.Cluster.Shards = -1 }, "cluster.shards = -1"},
	} {
		t.Run(name, tc.run)
	}
}

// The cluster sets the defaults of the embedded server.
func TestTheServerOfANode(t *testing.T) {
	c := Default()
	require.False(t, new(c.EmbeddedServer()).SyncsAlways())
	require.Equal(t, "data", c.EmbeddedServer().JetStreamDir)
	c.Cluster.Enabled, c.Cluster.Node = true, "a"
	require.True(t, new(c.EmbeddedServer()).SyncsAlways())
	require.Equal(t, "a", c.EmbeddedServer().Cluster.ServerName)
	c.NATS.Embedded.JetStreamSync, c.NATS.Embedded.Cluster.ServerName = "interval", "b"
	require.False(t, new(c.EmbeddedServer()).SyncsAlways())
	require.Equal(t, "b", c.EmbeddedServer().Cluster.ServerName)
}

func TestNodeName(t *testing.T) {
	name, err := (&ClusterConfig{Node: "a"}).NodeName()
	require.NoError(t, err)
	require.Equal(t, "a", name)
	name, err = (&ClusterConfig{}).NodeName()
	require.NoError(t, err)
	require.True(t, plainName(name), name)
}

func TestWhenJetStreamSyncs(t *testing.T) {
	e := Default().NATS.Embedded
	require.False(t, e.SyncsAlways(), "NATS's default")
	e.JetStreamSync = "always"
	require.True(t, e.SyncsAlways())
	e.JetStreamSync, e.Cluster.Name = "", "fila"
	require.True(t, e.SyncsAlways(), "the default of a cluster")
	e.JetStreamSync = "interval"
	require.False(t, e.SyncsAlways())
}

func TestWhatIsShared(t *testing.T) {
	s := SharedConfig{Keys: []string{"circuit:stripe", "circuit:vendor:*"}}
	require.False(t, s.SharesCircuit("stripe"), "nothing is enabled")
	s.Enabled = true
	for key, want := range map[string]bool{"stripe": true, "stripe2": false, "vendor:": true, "vendor:x": true, "vendor": false, "x": false} {
		require.Equal(t, want, s.SharesCircuit(key), key)
	}
	s.Keys = Default().Shared.Keys
	require.True(t, s.SharesCircuit("anything"))
}

func TestConfigValidate(t *testing.T) {
	external := func(c *Config) { c.NATS.URL = "nats://nats:4222" }
	for name, tc := range map[string]validateCase{
		"no data directory": {func(c *Config) { c.DataDir = "" }, `data_dir = "": allowed is a directory`},
		"negative drain":    {func(c *Config) { c.DrainTimeoutMs = -1 }, "drain_timeout_ms = -1: allowed is 0 to 3600000"},
		"users and a user": {func(c *Config) {
			c.NATS.Embedded.UsersFile, c.NATS.Embedded.User, c.NATS.Embedded.Password = "f", "u", "secret"
		}, "nats.embedded.users_file is set beside nats.embedded.user or token"},
		"users and a token":                  {func(c *Config) { c.NATS.Embedded.UsersFile, c.NATS.Embedded.Token = "f", "secret" }, "nats.embedded.users_file is set beside nats.embedded.user or token"},
		"account without users":              {func(c *Config) { c.NATS.Embedded.Account = "A" }, `nats.embedded.account = "A": it is one of nats.embedded.users_file, which is not set`},
		"users in an account":                {func(c *Config) { c.NATS.Embedded.Account, c.NATS.Embedded.UsersFile = "A", "f" }, ""},
		"embedded certificate alone":         {func(c *Config) { c.NATS.Embedded.TLS.Cert = "c" }, `nats.embedded.tls.cert = "c", nats.embedded.tls.key = "": they go together`},
		"embedded CA alone":                  {func(c *Config) { c.NATS.Embedded.TLS.CA = "c" }, `nats.embedded.tls.ca = "c": it is for the certificates of clients and needs nats.embedded.tls.cert and key`},
		"embedded TLS":                       {func(c *Config) { c.NATS.Embedded.TLS = TLSConfig{"a", "c", "k"} }, ""},
		"JetStream elsewhere, but off":       {func(c *Config) { c.NATS.Embedded.JetStreamDir = "d" }, `nats.embedded.jetstream_dir = "d": it needs nats.embedded.jetstream`},
		"no reply prefix":                    {func(c *Config) { c.NATS.ReplyPrefixes = nil }, `nats.reply_prefixes = []: allowed is at least one, such as "_INBOX."`},
		"reply prefix of all":                {func(c *Config) { c.NATS.ReplyPrefixes = []string{"_INBOX.", ">"} }, `nats.reply_prefixes: reply prefix ">": allowed are 1 to 64 bytes of printable ASCII`},
		"reply prefix of fila":               {func(c *Config) { c.NATS.SubjectPrefix, c.NATS.ReplyPrefixes = "jobs", []string{"jobs.event."} }, `nats.reply_prefixes: reply prefix "jobs.event.": fila's own subjects, which begin with jobs., are not allowed`},
		"no drain":                           {func(c *Config) { c.DrainTimeoutMs = 0 }, ""},
		"level":                              {func(c *Config) { c.Log.Level = "loud" }, `log.level = "loud": allowed is debug, info, warn, error`},
		"format":                             {func(c *Config) { c.Log.Format = "xml" }, `log.format = "xml": allowed is text, json`},
		"scheme":                             {func(c *Config) { c.NATS.URL = "http://x:1" }, `nats.url = "http://x:1": allowed is nats://host:port`},
		"no host":                            {func(c *Config) { c.NATS.URL = "nats://:4222" }, `nats.url = "nats://:4222": allowed`},
		"empty in the list":                  {func(c *Config) { c.NATS.URL = "nats://a:1,," }, `nats.url = "nats:": allowed`},
		"several":                            {func(c *Config) { c.NATS.URL = "nats://a:1, tls://b:2,c:4222,127.0.0.1:4222,localhost" }, ""},
		"password not shown":                 {func(c *Config) { c.NATS.URL = "http://me:secret@x:1" }, `nats.url = "http://me:xxxxx@x:1": allowed`},
		"unreadable":                         {func(c *Config) { c.NATS.URL = "nats://me:sec%zzret@x:1" }, "nats.url cannot be read: allowed"},
		"two logins":                         {func(c *Config) { external(c); c.NATS.User, c.NATS.Token = "u", "t" }, "nats.user and nats.token are both set"},
		"password alone":                     {func(c *Config) { external(c); c.NATS.Password = "secret" }, "nats.password is set without nats.user"},
		"half a key pair":                    {func(c *Config) { external(c); c.NATS.TLS.Cert = "c.pem" }, `nats.tls.cert = "c.pem", nats.tls.key = "": they go together`},
		"login without url":                  {func(c *Config) { c.NATS.Creds = "a.creds" }, "nats.creds is set without nats.url"},
		"ca without url":                     {func(c *Config) { c.NATS.TLS.CA = "ca.pem" }, "nats.tls is set without nats.url"},
		"login with url":                     {func(c *Config) { external(c); c.NATS.Creds = "a.creds" }, ""},
		"prefix":                             {func(c *Config) { c.NATS.SubjectPrefix = "a.*" }, `nats.subject_prefix = "a.*":`},
		"host":                               {func(c *Config) { c.NATS.Embedded.Host = "" }, `nats.embedded.host = "": allowed`},
		"port 0":                             {func(c *Config) { c.NATS.Embedded.Port = 0 }, "nats.embedded.port = 0: allowed is 1 to 65535, or -1"},
		"port too high":                      {func(c *Config) { c.NATS.Embedded.Port = 65_536 }, "nats.embedded.port = 65536"},
		"any port":                           {func(c *Config) { c.NATS.Embedded.Port = -1 }, ""},
		"embedded port is unused with a url": {func(c *Config) { external(c); c.NATS.Embedded.Port = 0 }, ""},
		"payload":                            {func(c *Config) { c.NATS.Embedded.MaxPayload = 8192 }, "nats.embedded.max_payload = 8192: allowed is 16384 to 67108864"},
		"embedded two logins": {func(c *Config) {
			c.NATS.Embedded.User, c.NATS.Embedded.Password, c.NATS.Embedded.Token = "u", "p", "t"
		}, "nats.embedded.user and nats.embedded.token are both set"},
		"embedded user alone": {func(c *Config) { c.NATS.Embedded.User = "u" }, "nats.embedded.user and nats.embedded.password go together"},
		"http":                {func(c *Config) { c.HTTP.Addr = "8222" }, `http.addr = "8222": allowed is host:port`},
		"http name of a port": {func(c *Config) { c.HTTP.Addr = "x:http" }, `http.addr = "x:http": allowed`},
		"http off":            {func(c *Config) { c.HTTP.Addr = "" }, ""},
		"http any port":       {func(c *Config) { c.HTTP.Addr = ":0" }, ""},
		"lua timeout":         {func(c *Config) { c.Lua.DefaultTimeoutMs = 0 }, "lua.default_timeout_ms = 0: allowed is 1 to"},
		"lua memory":          {func(c *Config) { c.Lua.DefaultMemoryLimitBytes = 1 }, "lua.default_memory_limit_bytes = 1: allowed is"},
		"lua threshold":       {func(c *Config) { c.Lua.CircuitBreakerThreshold = 0 }, "lua.circuit_breaker_threshold = 0: allowed is 1 to"},
		"lua cooldown":        {func(c *Config) { c.Lua.CircuitBreakerCooldownMs = 0 }, "lua.circuit_breaker_cooldown_ms = 0: allowed is 1 to"},
		"cache":               {func(c *Config) { c.Store.ReadCacheBytes = -1 }, "store.read_cache_bytes = -1: allowed is 0 to"},
		"uncommitted":         {func(c *Config) { c.Limits.MaxUncommittedBytes = 0 }, "limits.max_uncommitted_bytes = 0: allowed is 1048576 to"},
		"queue without name":  {func(c *Config) { c.Queues = []wire.QueueSettings{{}} }, "queue[0].name is missing"},
		"queue twice": {func(c *Config) {
			c.Queues = []wire.QueueSettings{wire.DefaultQueueSettings("a"), wire.DefaultQueueSettings("a")}
		}, `queue "a" is declared twice`},
		"queue named as a dlq": {func(c *Config) {
			c.Queues = []wire.QueueSettings{wire.DefaultQueueSettings("a.dlq")}
		}, `queue "a.dlq": name is "a.dlq": names that end in .dlq are reserved`},
		"queue with an unread file": {func(c *Config) {
			q := wire.DefaultQueueSettings("a")
			q.OnEnqueueFile = "x.lua"
			c.Queues = []wire.QueueSettings{q}
		}, `queue "a": on_enqueue_file`},
		"queue with a bad value": {func(c *Config) {
			q := wire.DefaultQueueSettings("a")
			q.VisibilityTimeoutMs = -5
			c.Queues = []wire.QueueSettings{q}
		}, `queue "a": visibility_timeout_ms`},
		"queue": {func(c *Config) { c.Queues = []wire.QueueSettings{wire.DefaultQueueSettings("a")} }, ""},
	} {
		t.Run(name, tc.run)
	}
}

func TestConfigValidateTables(t *testing.T) {
	throttles := func(tables ...ThrottleTable) func(*Config) { return func(c *Config) { c.Throttles = tables } }
	circuits := func(tables ...CircuitTable) func(*Config) { return func(c *Config) { c.Circuits = tables } }
	for name, tc := range map[string]validateCase{
		"throttles": {throttles(
			ThrottleTable{Key: "a", Rate: "0.5", Burst: 1.5, Concurrency: 1, Limit: 1, WindowMs: 1}, ThrottleTable{Key: "b", Rate: "1/3"},
			ThrottleTable{Key: "c", Concurrency: 5}, ThrottleTable{Key: "d", Limit: 1, WindowMs: wire.MaxSettingMs},
			ThrottleTable{Key: "a*", Rate: "1"}, ThrottleTable{Key: "*", Rate: "1"}, ThrottleTable{Key: "mit Leerzeichen ü", Rate: "1"},
		), ""},
		"throttle without key": {throttles(ThrottleTable{Rate: "1"}), "throttle[0].key is missing: every [[throttle]] needs one"},
		"throttle twice":       {throttles(ThrottleTable{Key: "a", Rate: "1"}, ThrottleTable{Key: "a", Limit: 1, WindowMs: 1}), `throttle "a" is declared twice: one [[throttle]] per key is allowed`},
		"long throttle key":    {throttles(ThrottleTable{Key: strings.Repeat("k", 257), Rate: "1"}), "throttle[0].key has 257 bytes: allowed are at most 256"},
		"control character":    {throttles(ThrottleTable{Key: "a\nb", Rate: "1"}), `throttle[0].key = "a\nb": allowed is text without control characters`},
		"key not UTF-8":        {throttles(ThrottleTable{Key: "a\xff", Rate: "1"}), `throttle[0].key = "a\xff": allowed is text`},
		"star in the middle":   {throttles(ThrottleTable{Key: "a*b", Rate: "1"}), `throttle[0].key = "a*b": allowed is one '*', at the end`},
		"two stars":            {throttles(ThrottleTable{Key: "a**", Rate: "1"}), `throttle[0].key = "a**": allowed is one '*', at the end`},
		"rate":                 {throttles(ThrottleTable{Key: "a", Rate: "10/s"}), `throttle[a].rate = "10/s": allowed is a number per second such as 10 or 0.5, or a fraction such as 1/3`},
		"burst without rate":   {throttles(ThrottleTable{Key: "a", Burst: 2, Concurrency: 1}), "throttle[a].burst is set without rate: they go together"},
		"burst":                {throttles(ThrottleTable{Key: "a", Rate: "1", Burst: 0.5}), "throttle[a].burst = 0.5: allowed is 1 to 1000000000"},
		"burst not a number":   {throttles(ThrottleTable{Key: "a", Rate: "1", Burst: math.NaN()}), "throttle[a].burst = NaN: allowed is 1 to 1000000000"},
		"fine burst":           {throttles(ThrottleTable{Key: "a", Rate: "1", Burst: 1.0005}), "throttle[a].burst = 1.0005: allowed are at most three digits after the point"},
		"endless burst":        {throttles(ThrottleTable{Key: "a", Rate: "1", Burst: math.Inf(1)}), "throttle[a].burst = +Inf: allowed is 1 to"},
		"window without limit": {throttles(ThrottleTable{Key: "a", WindowMs: 5}), "throttle[a].limit = 0, window_ms = 5: they go together"},
		"limit without window": {throttles(ThrottleTable{Key: "a", Limit: 5}), "throttle[a].limit = 5, window_ms = 0: they go together"},
		"limit":                {throttles(ThrottleTable{Key: "a", Limit: -1, WindowMs: 1}), "throttle[a].limit = -1: allowed is 0 to 1000000000"},
		"window":               {throttles(ThrottleTable{Key: "a", Limit: 1, WindowMs: wire.MaxSettingMs + 1}), "throttle[a].window_ms = 31536000001: allowed is 0 to 31536000000"},
		"concurrency":          {throttles(ThrottleTable{Key: "a", Concurrency: -1}), "throttle[a].concurrency = -1: allowed is 0 to 1000000000"},
		"nothing to limit":     {throttles(ThrottleTable{Key: "a"}), "throttle[a] limits nothing: set at least one of rate, concurrency, limit with window_ms, and budget with period"},
		"too many throttles":   {throttles(make([]ThrottleTable, maxGateTables+1)...), "throttle: 100001 tables: allowed are at most 100000"},
		"circuits":             {circuits(CircuitTable{Key: "a"}, CircuitTable{Key: "b", CircuitLimits: CircuitLimits{Threshold: 1, FailureHoldMs: 1}}), ""},
		"circuit without key":  {circuits(CircuitTable{}), "circuit[0].key is missing: every [[circuit]] needs one"},
		"circuit twice":        {circuits(CircuitTable{Key: "a"}, CircuitTable{Key: "a"}), `circuit "a" is declared twice: one [[circuit]] per key is allowed`},
		"prefix of circuits":   {circuits(CircuitTable{Key: "a*"}), `circuit[0].key = "a*": allowed is a whole key; there are no prefixes of circuits`},
		"circuit threshold":    {circuits(CircuitTable{Key: "a", CircuitLimits: CircuitLimits{Threshold: -1}}), "circuit[a].threshold = -1: allowed is 0 to 1000000"},
		"circuit hold":         {circuits(CircuitTable{Key: "a", CircuitLimits: CircuitLimits{FailureHoldMs: wire.MaxSettingMs + 1}}), "circuit[a].failure_hold_ms = 31536000001: allowed is 0 to"},
		"too many circuits":    {circuits(make([]CircuitTable, maxGateTables+1)...), "circuit: 100001 tables: allowed are at most 100000"},
		"default threshold":    {func(c *Config) { c.CircuitDefaults.Threshold = 0 }, "circuit_defaults.threshold = 0: allowed is 1 to 1000000"},
		"default window":       {func(c *Config) { c.CircuitDefaults.FailureWindowMs = 0 }, "circuit_defaults.failure_window_ms = 0: allowed is 1 to"},
		"default probes":       {func(c *Config) { c.CircuitDefaults.HalfOpenMaxCalls = 0 }, "circuit_defaults.half_open_max_calls = 0: allowed is 1 to"},
		"policies":             {func(c *Config) { c.RetryPolicies = []rules.RetryPolicy{{}} }, "retry_policy[0].name is missing"},
		"rule":                 {func(c *Config) { c.ErrorRules = []rules.ErrorRule{{Name: "e"}} }, "error_rule[e].code and pattern are both empty"},
		"policy of a queue":    {func(c *Config) { withRules(c); c.Queues[0].RetryPolicy = "sloow" }, `queue[orders].retry_policy = "sloow": allowed is the name of a [[retry_policy]]: slow`},
		"rules":                {withRules, ""},
	} {
		t.Run(name, tc.run)
	}
}

// withRules declares one table of each kind.
func withRules(c *Config) {
	c.Throttles = []ThrottleTable{{Key: "tenant:*", Rate: "10"}}
	c.Circuits = []CircuitTable{{Key: "stripe", CircuitLimits: CircuitLimits{Threshold: 3, MaxFailures: 50}}}
	c.RetryPolicies = []rules.RetryPolicy{{Name: "slow", InitialDelayMs: 100}}
	c.ErrorRules = []rules.ErrorRule{{Name: "timeouts", Code: "timeout", RetryPolicy: "slow"}, {Name: "fire", Code: "fire", Severity: "critical"}}
	q := wire.DefaultQueueSettings("orders")
	q.RetryPolicy = "slow"
	c.Queues = []wire.QueueSettings{q}
}

func TestSharedKeys(t *testing.T) {
	s := SharedConfig{Enabled: true, Keys: []string{"circuit:*", "throttle:vendor:*", "throttle:x"}}
	require.True(t, s.SharesCircuit("anything"))
	require.True(t, s.SharesThrottle("vendor:a"))
	require.True(t, s.SharesThrottle("x"))
	require.False(t, s.SharesThrottle("xy"))
	require.False(t, s.SharesThrottle("circuit:x"))
	s.Enabled = false
	require.False(t, s.SharesThrottle("x"))
}

func TestHTTPValidate(t *testing.T) {
	proxied := func(c *Config) { c.HTTP.TrustedProxies, c.HTTP.UserHeader = []string{"10.0.0.0/8", "::1"}, "X-User" }
	for name, tc := range map[string]validateCase{
		"a base path":            {func(c *Config) { c.HTTP.BasePath = "/a/fila" }, ""},
		"a slash at the end":     {func(c *Config) { c.HTTP.BasePath = "/fila/" }, `http.base_path = "/fila/": allowed is a path such as /fila`},
		"no slash":               {func(c *Config) { c.HTTP.BasePath = "fila" }, "http.base_path"},
		"dots":                   {func(c *Config) { c.HTTP.BasePath = "/a/../b" }, "http.base_path"},
		"a pattern":              {func(c *Config) { c.HTTP.BasePath = "/{x}" }, "http.base_path"},
		"a host":                 {func(c *Config) { c.HTTP.Hosts = []string{"fila.example.com"} }, ""},
		"a port":                 {func(c *Config) { c.HTTP.Hosts = []string{"fila:8222"} }, `http.hosts has "fila:8222": allowed are names without a port`},
		"proxies":                {proxied, ""},
		"queues by name":         {func(c *Config) { c.HTTP.MetricsQueues = []string{"orders", "mail.*", "mail*", "*"} }, ""},
		"no queue at all":        {func(c *Config) { c.HTTP.MetricsQueues = nil }, ""},
		"not a queue":            {func(c *Config) { c.HTTP.MetricsQueues = []string{"a b"} }, `http.metrics_queues has "a b": allowed are QUEUE, PREFIX* and *`},
		"an empty queue":         {func(c *Config) { c.HTTP.MetricsQueues = []string{""} }, `http.metrics_queues has ""`},
		"a star within":          {func(c *Config) { c.HTTP.MetricsQueues = []string{"a*b"} }, `http.metrics_queues has "a*b"`},
		"dead letters by name":   {func(c *Config) { c.HTTP.MetricsQueues = []string{"orders.dlq"} }, `http.metrics_queues has "orders.dlq"`},
		"no address":             {func(c *Config) { c.HTTP.TrustedProxies = []string{"proxy"} }, `http.trusted_proxies has "proxy": allowed are addresses`},
		"a header of anybody":    {func(c *Config) { c.HTTP.UserHeader = "X-User" }, "it needs http.trusted_proxies"},
		"no name of a header":    {func(c *Config) { proxied(c); c.HTTP.UserHeader = "X User" }, `http.user_header = "X User": allowed is the name`},
		"a role of nobody":       {func(c *Config) { c.HTTP.RoleHeader = "X-Role" }, "it needs http.user_header"},
		"metrics with no token":  {func(c *Config) { c.HTTP.MetricsToken = true }, "it needs http.viewer_token or http.operator_token"},
		"metrics with a token":   {func(c *Config) { c.HTTP.MetricsToken, c.HTTP.ViewerToken = true, "file" }, ""},
		"traces":                 {func(c *Config) { c.HTTP.TraceURL = "https://g.example.com/explore?q=%7B%22id%22%3A%22{trace_id}%22%7D" }, ""},
		"traces without an id":   {func(c *Config) { c.HTTP.TraceURL = "https://g.example.com/" }, `http.trace_url = "https://g.example.com/": allowed is`},
		"traces by a script":     {func(c *Config) { c.HTTP.TraceURL = "javascript:alert('{trace_id}')" }, "http.trace_url"},
		"traces without a host":  {func(c *Config) { c.HTTP.TraceURL = "https:///{trace_id}" }, "http.trace_url"},
		"a host of each trace":   {func(c *Config) { c.HTTP.TraceURL = "https://{trace_id}.example.com/" }, "http.trace_url"},
		"traces with a password": {func(c *Config) { c.HTTP.TraceURL = "https://a:b@g.example.com/{trace_id}" }, "http.trace_url"},
		"traces, no URL":         {func(c *Config) { c.HTTP.TraceURL = "https://g.example.com/%zz{trace_id}" }, "http.trace_url"},
		"a certificate, no key":  {func(c *Config) { c.HTTP.TLS.Cert = "x.pem" }, "they go together"},
		"a certificate and keys": {func(c *Config) { c.HTTP.TLS = HTTPTLS{"x.pem", "y.pem"} }, ""},
	} {
		t.Run(name, tc.run)
	}
}
