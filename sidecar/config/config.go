package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/textproto"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/wire"
)

// Config is everything that `fila serve` can be told. The koanf tags are the
// keys of config.toml; docs/configuration.md explains each. Times ending in Ms
// are milliseconds, sizes are bytes.
type Config struct {
	DataDir        string        `koanf:"data_dir"`         // directory of the store; created if missing
	DrainTimeoutMs int64         `koanf:"drain_timeout_ms"` // how long a shutdown waits for leases to settle
	Log            LogConfig     `koanf:"log"`
	NATS           NATSConfig    `koanf:"nats"`
	HTTP           HTTPConfig    `koanf:"http"`
	OTel           OTelConfig    `koanf:"otel"`
	Lua            LuaConfig     `koanf:"lua"`
	Store          StoreConfig   `koanf:"store"`
	Limits         LimitsConfig  `koanf:"limits"`
	Shared         SharedConfig  `koanf:"shared"`
	Cluster        ClusterConfig `koanf:"cluster"`

	// Queues are declared in the file and win over stored settings at every
	// start. Script files are resolved by then: settings carry text only.
	Queues []wire.QueueSettings `koanf:"queue"`

	// The rules: what can be changed while fila runs, by a reload.
	Throttles       []ThrottleTable     `koanf:"throttle"`
	Circuits        []CircuitTable      `koanf:"circuit"`
	CircuitDefaults CircuitLimits       `koanf:"circuit_defaults"` // of circuits about which no [[circuit]] says otherwise
	RetryPolicies   []rules.RetryPolicy `koanf:"retry_policy"`
	ErrorRules      []rules.ErrorRule   `koanf:"error_rule"`
	Guards          []GuardTable        `koanf:"guard"`
	Routes          []RouteTable        `koanf:"route"`

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
	// Context names a context of the nats CLI, from which Load has filled the
	// other fields.
	Context       string   `koanf:"context"`
	SubjectPrefix string   `koanf:"subject_prefix"`
	ReplyPrefixes []string `koanf:"reply_prefixes"` // of reply subjects that are answered
	// What clients send with larger or more headers is refused before it is parsed.
	MaxHeaderBytes int            `koanf:"max_header_bytes"`
	MaxHeaders     int            `koanf:"max_headers"`
	Name           string         `koanf:"name"` // connection name, as the server lists it
	TLS            TLSConfig      `koanf:"tls"`
	Embedded       EmbeddedConfig `koanf:"embedded"`
}

// TLSConfig names PEM files. Cert and Key go together.
type TLSConfig struct {
	CA   string `koanf:"ca"`
	Cert string `koanf:"cert"`
	Key  string `koanf:"key"`
}

// EmbeddedConfig is the NATS server that fila runs itself when NATSConfig.URL
// is empty. Without user, token and users file anybody who reaches the port is let in.
type EmbeddedConfig struct {
	Host       string `koanf:"host"`
	Port       int    `koanf:"port"`        // -1 takes any free port
	MaxPayload int64  `koanf:"max_payload"` // largest message, payload and headers
	// A client is cut off when it has left MaxPending bytes unread, or twice MaxPayload if
	// that is more, and when it has read nothing for WriteDeadlineMs.
	MaxPending            int64 `koanf:"max_pending"`
	WriteDeadlineMs       int64 `koanf:"write_deadline_ms"`
	MaxConnectionsPerUser int   `koanf:"max_connections_per_user"`

	User     string `koanf:"user"`
	Password string `koanf:"password"`
	Token    string `koanf:"token"`
	// UsersFile has users, permissions and accounts as in a nats-server's
	// configuration. fila is in the account Account; empty: the global account.
	UsersFile    string `koanf:"users_file"`
	Account      string `koanf:"account"`
	JetStream    bool   `koanf:"jetstream"`
	JetStreamDir string `koanf:"jetstream_dir"` // its parent directory; empty: the directory of the store
	// JetStreamSync says when JetStream syncs what it has acked: always, before the ack,
	// or interval, every two minutes; empty: always in a cluster, otherwise interval.
	JetStreamSync string          `koanf:"jetstream_sync"`
	TLS           TLSConfig       `koanf:"tls"` // with CA clients must have certificates of its
	Cluster       EmbeddedCluster `koanf:"cluster"`
}

// EmbeddedCluster joins embedded servers into one NATS cluster. They are its equal
// members, and each knows at least one other.
type EmbeddedCluster struct {
	Name       string   `koanf:"name"`        // of the cluster; empty: the server is alone
	ServerName string   `koanf:"server_name"` // unique in the cluster, and the same after a restart; empty: cluster.node, or host name and port
	Listen     string   `koanf:"listen"`      // host:port for the other servers
	Routes     []string `koanf:"routes"`      // host:port of the servers; the own one does no harm
	User       string   `koanf:"user"`        // that the servers log in as at each other
	Password   string   `koanf:"password"`
}

// SyncsAlways reports whether what JetStream acks is on disk.
func (e *EmbeddedConfig) SyncsAlways() bool {
	return cmp.Or(e.JetStreamSync, e.defaultSync()) == syncAlways
}

func (e *EmbeddedConfig) defaultSync() string {
	if e.Cluster.Name != "" {
		return syncAlways
	}
	return syncInterval
}

const (
	syncAlways   = "always"
	syncInterval = "interval"
)

// HTTPConfig is the listener of the pages, health checks and metrics.
type HTTPConfig struct {
	Addr  string `koanf:"addr"`  // host:port; empty is off
	Pprof bool   `koanf:"pprof"` // serve /debug/pprof
	// MetricsCircuits are the circuit keys, or with * at the end prefixes of them, that
	// may be labels beside those that have a table of their own.
	MetricsCircuits []string `koanf:"metrics_circuits"`
	// MetricsQueues are the queues, or with * at the end prefixes of their names, that are
	// labels, with their dead letter queues.
	MetricsQueues []string `koanf:"metrics_queues"`

	// Access to the pages and their actions; see [HTTPConfig.Open] for access without a token.
	ViewerToken    string   `koanf:"viewer_token"`    // file
	OperatorToken  string   `koanf:"operator_token"`  // file
	TrustedProxies []string `koanf:"trusted_proxies"` // addresses and networks whose headers count
	UserHeader     string   `koanf:"user_header"`     // of a trusted proxy: who asks; empty: none
	RoleHeader     string   `koanf:"role_header"`     // of a trusted proxy: viewer or operator; empty: all are viewers
	Hosts          []string `koanf:"hosts"`           // names under which the pages may be asked for
	BasePath       string   `koanf:"base_path"`       // of the pages, behind a proxy
	MetricsToken   bool     `koanf:"metrics_token"`   // /metrics and profiles need a token as well
	TraceURL       string   `koanf:"trace_url"`       // where a browser finds a trace; empty: nowhere
	StyleGuide     bool     `koanf:"styleguide"`      // serve /styleguide, the components of the pages
	TLS            HTTPTLS  `koanf:"tls"`
}

// HTTPTLS names PEM files, which go together.
type HTTPTLS struct {
	Cert string `koanf:"cert"`
	Key  string `koanf:"key"`
}

// Open reports whether who reaches the listener is an operator: on a loopback address, and
// with no word of anybody who passes requests of others on.
func (h *HTTPConfig) Open() bool {
	host, _, err := net.SplitHostPort(h.Addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	loopback := host == "localhost" || err == nil && ip.IsLoopback()
	return loopback && !h.Guarded() && h.BasePath == "" && len(h.TrustedProxies) == 0
}

// Guarded reports whether there are tokens.
func (h *HTTPConfig) Guarded() bool { return h.ViewerToken != "" || h.OperatorToken != "" }

// Proxies are the networks of TrustedProxies.
func (h *HTTPConfig) Proxies() (list []netip.Prefix, err error) {
	for _, text := range h.TrustedProxies {
		prefix, err := netip.ParsePrefix(text)
		if addr, bad := netip.ParseAddr(text); bad == nil {
			prefix, err = addr.Prefix(addr.BitLen())
		}
		if err != nil {
			return nil, fmt.Errorf("http.trusted_proxies has %q: allowed are addresses such as 10.0.0.7 and networks such as 10.0.0.0/8", text)
		}
		list = append(list, prefix.Masked())
	}
	return list, nil
}

// traceID stands for the id of a trace in TraceURL.
const traceID = "{trace_id}"

// Trace is where a browser finds a trace; empty: nobody has said.
func (h *HTTPConfig) Trace(id string) string { return strings.ReplaceAll(h.TraceURL, traceID, id) }

func (h *HTTPConfig) checkTraceURL() error {
	if h.TraceURL == "" {
		return nil
	}
	u, err := url.Parse(h.Trace("0af7651916cd43dd8448eb211c80319c"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.Contains(u.Host, "0af7651916cd43dd8448eb211c80319c") || !strings.Contains(h.TraceURL, traceID) {
		return fmt.Errorf("http.trace_url = %q: allowed is an http or https URL with %s behind its host, such as https://traces.example.com/trace/%s, or empty for none", h.TraceURL, traceID, traceID)
	}
	return nil
}

// NamesQueue reports whether the name of a queue (not of a dead letter queue) may be a
// label.
func (h *HTTPConfig) NamesQueue(name string) bool { return anyCovers(h.MetricsQueues, name) }

// NamesCircuit reports whether the key of a circuit may be a label.
func (h *HTTPConfig) NamesCircuit(key string) bool { return anyCovers(h.MetricsCircuits, key) }

func (h *HTTPConfig) check() error {
	for _, pattern := range h.MetricsCircuits {
		if pattern == "" || strings.Contains(strings.TrimSuffix(pattern, "*"), "*") {
			return fmt.Errorf("http.metrics_circuits has %q: allowed are KEY, PREFIX* and *", pattern)
		}
	}
	for _, pattern := range h.MetricsQueues {
		if err := checkQueuePattern(pattern); err != nil {
			return err
		}
	}
	for _, host := range h.Hosts {
		if host == "" || strings.ContainsAny(host, ":/ *") {
			return fmt.Errorf("http.hosts has %q: allowed are names without a port, such as fila.example.com", host)
		}
	}
	if b := h.BasePath; b != "" && (!basePath.MatchString(b) || path.Clean(b) != b) {
		return fmt.Errorf("http.base_path = %q: allowed is a path such as /fila, without a slash at the end, of letters, digits, '.', '_', '~' and '-', or empty for none", b)
	}
	_, err := h.Proxies()
	if err = cmp.Or(err, h.checkTraceURL()); err != nil {
		return err
	}
	for _, header := range []struct{ key, name string }{{"user_header", h.UserHeader}, {"role_header", h.RoleHeader}} {
		if header.name != "" && !headerName.MatchString(header.name) {
			return fmt.Errorf("http.%s = %q: allowed is the name of a header, such as X-Forwarded-User, or empty for none", header.key, header.name)
		}
	}
	switch {
	case h.UserHeader != "" && len(h.TrustedProxies) == 0:
		return fmt.Errorf("http.user_header = %q: it needs http.trusted_proxies, since any client could set the header otherwise", h.UserHeader)
	case h.RoleHeader != "" && h.UserHeader == "":
		return fmt.Errorf("http.role_header = %q: it needs http.user_header", h.RoleHeader)
	case h.MetricsToken && !h.Guarded():
		return errors.New("http.metrics_token = true: it needs http.viewer_token or http.operator_token")
	case (h.TLS.Cert == "") != (h.TLS.Key == ""):
		return fmt.Errorf("http.tls.cert = %q, http.tls.key = %q: they go together", h.TLS.Cert, h.TLS.Key)
	}
	return nil
}

// checkQueuePattern refuses what no queue is called, and dead letter queues, which go with
// their queues.
func checkQueuePattern(pattern string) error {
	name, many := strings.CutSuffix(pattern, "*")
	if many && (name == "" || strings.HasSuffix(name, ".")) {
		name += "x" // which may come
	}
	if wire.CheckQueueName(name) != nil || wire.IsDLQ(pattern) {
		return fmt.Errorf("http.metrics_queues has %q: allowed are QUEUE, PREFIX* and *", pattern)
	}
	return nil
}

var (
	basePath   = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)+$`)
	headerName = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
)

// OTelConfig configures the export to an OpenTelemetry collector.
type OTelConfig struct {
	Endpoint          string `koanf:"endpoint"`            // URL; empty is off
	Protocol          string `koanf:"protocol"`            // http/protobuf or grpc
	Sampling          string `koanf:"sampling"`            // parent, or off: no spans
	MetricsIntervalMs int64  `koanf:"metrics_interval_ms"` // how often metrics are sent; 0: they are not
	HeadersFile       string `koanf:"headers_file"`        // headers of each request, NAME: VALUE lines
	CA                string `koanf:"ca"`                  // PEM file, for https
}

// Ways of [OTelConfig.Sampling].
const (
	SamplingParent = "parent"
	SamplingOff    = "off"
)

func (o *OTelConfig) check() error {
	if err := cmp.Or(
		oneOf("otel.protocol", o.Protocol, "http/protobuf", "grpc"),
		oneOf("otel.sampling", o.Sampling, SamplingParent, SamplingOff),
		within("otel.metrics_interval_ms", o.MetricsIntervalMs, 0, 3_600_000),
	); err != nil || o.Endpoint == "" {
		return err
	}
	const allowed = "allowed is a URL, http://HOST:PORT or https://HOST:PORT, with a path for http/protobuf only, or empty for off"
	u, err := url.Parse(o.Endpoint)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.User != nil, u.RawQuery != "", u.Fragment != "",
		o.Protocol == "grpc" && strings.Trim(u.Path, "/") != "":
		return errors.New("otel.endpoint is invalid: " + allowed) // it may have a password
	case o.CA != "" && u.Scheme != "https":
		return fmt.Errorf("otel.ca = %q: otel.endpoint is not https", o.CA)
	case o.Sampling == SamplingOff && o.MetricsIntervalMs == 0:
		return errors.New("otel.endpoint is set, but otel.sampling is off and otel.metrics_interval_ms is 0: nothing would be sent")
	}
	_, err = o.Headers()
	return err
}

// Headers returns the headers in HeadersFile, which may be secrets.
func (o *OTelConfig) Headers() (map[string][]string, error) {
	h := make(map[string][]string)
	if o.HeadersFile == "" {
		return h, nil
	}
	text, err := os.ReadFile(o.HeadersFile)
	if err != nil {
		return nil, fmt.Errorf("otel.headers_file: %w", err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		plain := !strings.ContainsFunc(name, func(r rune) bool { return !plainRune(r) }) && !strings.ContainsFunc(value, unicode.IsControl)
		if !ok || name == "" || !plain {
			return nil, fmt.Errorf("otel.headers_file: line %d of %s is not NAME: VALUE", n, o.HeadersFile)
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		h[name] = append(h[name], value)
	}
	return h, nil
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
	MinFreeBytes   int64 `koanf:"min_free_bytes"`   // of the disk, below which enqueues get 503; -1: 256 MiB or 5 % of a small disk, 0: off
}

// LimitsConfig bounds what fila holds in memory.
type LimitsConfig struct {
	MaxUncommittedBytes int64 `koanf:"max_uncommitted_bytes"` // enqueues waiting for the disk; beyond it 429

	// Bounds of keys, ids and names that clients choose. A request that would add one more is
	// refused with 429.
	MaxThrottleKeys int64 `koanf:"max_throttle_keys"`
	MaxCircuits     int64 `koanf:"max_circuits"`
	MaxRateKeys     int64 `koanf:"max_rate_keys"`  // per queue, with enqueue_rate_per_key
	MaxDedupeIDs    int64 `koanf:"max_dedupe_ids"` // per queue
	MaxConsumers    int64 `koanf:"max_consumers"`  // per queue
	MaxFetches      int64 `koanf:"max_fetches"`    // that wait, per queue
	MaxSchedules    int64 `koanf:"max_schedules"`  // per queue
	// MaxConsumerFetches bounds the waiting fetches of one consumer per queue, on the subject
	// with its name.
	MaxConsumerFetches int64 `koanf:"max_consumer_fetches"`
	// MaxEnqueuedSchedules bounds the schedules of a queue that enqueues have made.
	MaxEnqueuedSchedules int64 `koanf:"max_enqueued_schedules"`
	// MaxGuardPermits bounds the live permits of the guard, MaxGuardKeyPermits the ones with
	// the same first key, and MaxGuardCallerPermits the ones of one caller.
	MaxGuardPermits       int64 `koanf:"max_guard_permits"`
	MaxGuardKeyPermits    int64 `koanf:"max_guard_key_permits"`
	MaxGuardCallerPermits int64 `koanf:"max_guard_caller_permits"`
}

// SharedConfig says what this fila shares with others by a key-value bucket of
// JetStream.
type SharedConfig struct {
	Enabled  bool   `koanf:"enabled"`
	Bucket   string `koanf:"bucket"`
	Replicas int64  `koanf:"replicas"` // of the bucket, when it is made
	Instance string `koanf:"instance"` // name of this fila; empty: host and process id
	// GuardPrefix is the subject prefix under which all filas that have it answer as one
	// guard; empty: none.
	GuardPrefix string   `koanf:"guard_prefix"`
	Keys        []string `koanf:"keys"` // what is shared: circuit:KEY, or circuit:PREFIX*
}

// ClusterConfig makes this fila a node of a cluster that serves one subject prefix.
type ClusterConfig struct {
	Enabled    bool   `koanf:"enabled"`
	Name       string `koanf:"name"`        // of the cluster
	Node       string `koanf:"node"`        // of this node, unique in the cluster; empty: host name
	Shards     int64  `koanf:"shards"`      // fixed when the cluster is made
	FailoverMs int64  `koanf:"failover_ms"` // silence of a shard's owner after which another node takes over
	Replicas   int64  `koanf:"replicas"`    // of what lies in JetStream, when it is made
	AllowR1    bool   `koanf:"allow_r1"`    // replicas may be less than 3
	LogBytes   int64  `koanf:"log_bytes"`   // of the log of a shard, when it is made; 0: any number
	// AllowNATS are versions of NATS servers that will do, although they can lose what is confirmed.
	AllowNATS  []string `koanf:"allow_nats"`
	Require    []string `koanf:"require"`    // what nodes must have seen of NATS servers: version, sync
	Monitoring []string `koanf:"monitoring"` // URLs of the monitoring of NATS servers
}

// Values of [ClusterConfig.Require].
const (
	RequireVersion = "version"
	RequireSync    = "sync"
)

// NodeName returns the name of this node: cluster.node, or the host name as far as it may
// be part of subjects.
func (c *ClusterConfig) NodeName() (string, error) {
	if c.Node != "" {
		return c.Node, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("cluster.node is not set, and the host has no name: %w", err)
	}
	host = strings.Map(func(r rune) rune {
		if !plainRune(r) {
			return '-'
		}
		return r
	}, host)
	return host[:min(len(host), maxPlainName)], nil
}

// EmbeddedServer returns how the embedded server is to run, with what the rest of the
// configuration says of it: where JetStream lies, when it syncs, and its name.
func (c *Config) EmbeddedServer() EmbeddedConfig {
	e := c.NATS.Embedded
	e.JetStreamDir = c.JetStreamPath()
	if c.Cluster.Enabled && e.JetStreamSync == "" {
		e.JetStreamSync = syncAlways
	}
	if e.Cluster.ServerName == "" {
		e.Cluster.ServerName = c.Cluster.Node
	}
	return e
}

// Gates returns how this fila shares gates with others. The nodes of a cluster share all of
// them, in a bucket of their own or, together with other filas, in the bucket of [shared].
func (c *Config) Gates() SharedConfig {
	s := c.Shared
	if !c.Cluster.Enabled {
		return s
	}
	if !s.Enabled {
		s.Enabled, s.Bucket, s.Replicas = true, "FILA_"+c.Cluster.Name+"_GATES", c.Cluster.Replicas
	}
	if node, err := c.Cluster.NodeName(); err == nil { // it is checked where the node is made
		s.Instance = node
	}
	s.Keys = []string{circuitKeys + "*", throttleKeys + "*"}
	return s
}

// circuitKeys and throttleKeys begin what Keys says of circuits and throttles.
const (
	circuitKeys  = "circuit:"
	throttleKeys = "throttle:"
)

// SharesCircuit reports whether the circuit of a key is shared.
func (s *SharedConfig) SharesCircuit(key string) bool { return s.shares(circuitKeys, key) }

// SharesThrottle reports whether the limits of a throttle key are shared.
func (s *SharedConfig) SharesThrottle(key string) bool { return s.shares(throttleKeys, key) }

func (s *SharedConfig) shares(kind, key string) bool {
	return s.Enabled && anyCovers(s.Keys, kind+key)
}

func (s *SharedConfig) check() error {
	if !plainName(s.Bucket) {
		return fmt.Errorf("shared.bucket = %q: %s", s.Bucket, plainNames)
	}
	if len(s.Instance) > maxInstance || !utf8.ValidString(s.Instance) || strings.ContainsFunc(s.Instance, unicode.IsControl) {
		return fmt.Errorf("shared.instance = %q: allowed are at most %d bytes of text, or empty for host and process id", s.Instance, maxInstance)
	}
	for _, pattern := range s.Keys {
		key, ok := strings.CutPrefix(pattern, circuitKeys)
		if !ok {
			key, ok = strings.CutPrefix(pattern, throttleKeys)
		}
		if !ok || key == "" || strings.Contains(strings.TrimSuffix(key, "*"), "*") {
			return fmt.Errorf("shared.keys has %q: allowed are circuit:KEY, circuit:PREFIX*, throttle:KEY and throttle:PREFIX*", pattern)
		}
	}
	return within("shared.replicas", s.Replicas, 1, maxReplicas)
}

const (
	maxInstance = 128 // bytes
	maxReplicas = 5   // as many as JetStream has
)

// Default returns the configuration of a start without file, environment and
// flags. config.toml in the repository shows the same values.
func Default() Config {
	return Config{
		DataDir:        "data",
		DrainTimeoutMs: 10_000,
		Log:            LogConfig{Level: "info", Format: "text"},
		NATS: NATSConfig{
			SubjectPrefix:  "fila",
			ReplyPrefixes:  []string{"_INBOX.", "_R_."},
			MaxHeaderBytes: 16 << 10, MaxHeaders: 128,
			Name: "fila",
			Embedded: EmbeddedConfig{
				Host: "127.0.0.1", Port: 4222, MaxPayload: 1 << 20, MaxPending: 16 << 20, WriteDeadlineMs: 5000, MaxConnectionsPerUser: 1000,
				Cluster: EmbeddedCluster{Listen: "127.0.0.1:6222", Routes: []string{}},
			},
		},
		HTTP: HTTPConfig{Addr: "127.0.0.1:8222", MetricsCircuits: []string{}, MetricsQueues: []string{"*"}, TrustedProxies: []string{}, Hosts: []string{}},
		OTel: OTelConfig{Protocol: "http/protobuf", Sampling: SamplingParent, MetricsIntervalMs: 15_000},
		Lua: LuaConfig{
			DefaultTimeoutMs:         10,
			DefaultMemoryLimitBytes:  1 << 20,
			CircuitBreakerThreshold:  3,
			CircuitBreakerCooldownMs: 10_000,
		},
		Store: StoreConfig{ReadCacheBytes: 64 << 20, MinFreeBytes: -1},
		Limits: LimitsConfig{
			MaxUncommittedBytes: 256 << 20,
			MaxThrottleKeys:     1_000_000, MaxCircuits: 100_000, MaxRateKeys: 100_000, MaxDedupeIDs: 10_000_000, MaxConsumers: 10_000, MaxFetches: 10_000, MaxConsumerFetches: 1000, MaxSchedules: 1000, MaxEnqueuedSchedules: 100, MaxGuardPermits: 1_000_000,
			MaxGuardKeyPermits: 100_000, MaxGuardCallerPermits: 50_000,
		},
		Shared:          SharedConfig{Bucket: "FILA_GATES", Replicas: 1, Keys: []string{"circuit:*"}},
		Cluster:         ClusterConfig{Name: "fila", Shards: 8, FailoverMs: 2500, Replicas: 3, AllowNATS: []string{}, Require: []string{RequireVersion}, Monitoring: []string{}},
		CircuitDefaults: CircuitLimits{Threshold: 10, CooldownMs: 300_000, HalfOpenMaxCalls: 3, HalfOpenSuccesses: 1, FailureWindowMs: 60_000},
	}
}

// JetStreamPath returns the directory in which the embedded server keeps JetStream.
func (c *Config) JetStreamPath() string { return cmp.Or(c.NATS.Embedded.JetStreamDir, c.DataDir) }

// StorePath returns the path of the store's file.
func (c *Config) StorePath() string { return filepath.Join(c.DataDir, "fila.db") }

// StoreFile returns the file of a path, which is a store's file or a data directory.
func StoreFile(path string) string {
	if fi, err := os.Stat(path); err == nil && fi.IsDir() {
		return (&Config{DataDir: path}).StorePath()
	}
	return path
}
