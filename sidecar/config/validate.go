package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/wire"
)

// Bounds of the tables.
const (
	maxGateKey    = 256     // bytes, as in what a hook may return
	maxGateTables = 100_000 // of one kind
)

// Validate returns the first value that cannot work, as one line that names
// the key, the value and what is allowed. Secrets are not printed.
func (c *Config) Validate() error {
	return cmp.Or(c.checkValues(), c.NATS.check(), c.HTTP.check(), c.OTel.check(), c.checkShared(), c.checkClusterOfNodes(), c.checkQueues(), c.checkThrottles(), c.checkCircuits(), c.checkRules(), c.CheckGuards(), checkRoutes(c.Routes))
}

// minCircuits is more than the circuits that are kept for the failures that they have
// in mind, which would fill a smaller limit for good.
const minCircuits = 20_000

// maxLimit is the largest number of keys, ids and consumers that may be allowed.
const maxLimit = 1_000_000_000

// maxSchedules is how many schedules a shard has at most.
const maxSchedules = 10_000

func (c *Config) checkValues() error {
	return cmp.Or(
		required("data_dir", c.DataDir, "a directory"),
		within("drain_timeout_ms", c.DrainTimeoutMs, 0, 3_600_000),
		oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error"),
		oneOf("log.format", c.Log.Format, "text", "json"),
		address("http.addr", c.HTTP.Addr),
		within("lua.default_timeout_ms", c.Lua.DefaultTimeoutMs, 1, wire.MaxLuaTimeoutMs),
		within("lua.default_memory_limit_bytes", c.Lua.DefaultMemoryLimitBytes, wire.MinLuaMemoryBytes, wire.MaxLuaMemoryBytes),
		within("lua.circuit_breaker_threshold", c.Lua.CircuitBreakerThreshold, 1, 1_000_000),
		within("lua.circuit_breaker_cooldown_ms", c.Lua.CircuitBreakerCooldownMs, 1, wire.MaxSettingMs),
		within("store.read_cache_bytes", c.Store.ReadCacheBytes, 0, 1<<40),
		within("store.min_free_bytes", c.Store.MinFreeBytes, -1, 1<<50),
		within("limits.max_uncommitted_bytes", c.Limits.MaxUncommittedBytes, 1<<20, 1<<40),
		within("limits.max_throttle_keys", c.Limits.MaxThrottleKeys, 1, maxLimit),
		within("limits.max_circuits", c.Limits.MaxCircuits, minCircuits, maxLimit),
		within("limits.max_rate_keys", c.Limits.MaxRateKeys, 1, maxLimit),
		within("limits.max_dedupe_ids", c.Limits.MaxDedupeIDs, 1, maxLimit),
		within("limits.max_consumers", c.Limits.MaxConsumers, 1, maxLimit),
		within("limits.max_fetches", c.Limits.MaxFetches, 1, maxLimit),
		within("limits.max_consumer_fetches", c.Limits.MaxConsumerFetches, 1, maxLimit),
		within("limits.max_schedules", c.Limits.MaxSchedules, 1, maxSchedules),
		within("limits.max_enqueued_schedules", c.Limits.MaxEnqueuedSchedules, 1, maxSchedules),
		within("limits.max_guard_permits", c.Limits.MaxGuardPermits, 1, maxLimit),
		within("limits.max_guard_key_permits", c.Limits.MaxGuardKeyPermits, 1, maxLimit),
		within("limits.max_guard_caller_permits", c.Limits.MaxGuardCallerPermits, 1, maxLimit),
	)
}

func (c *Config) checkShared() error {
	if c.Shared.Enabled && c.NATS.URL == "" && !c.NATS.Embedded.JetStream {
		return errors.New("shared.enabled = true: the embedded NATS server has no JetStream; set nats.embedded.jetstream = true, or nats.url")
	}
	return cmp.Or(c.Shared.check(), c.checkGuardPrefix())
}

// checkGuardPrefix wants a prefix whose guard is in nobody's way.
func (c *Config) checkGuardPrefix() error {
	prefix := c.Shared.GuardPrefix
	if prefix == "" {
		return nil
	}
	common, err := wire.NewSubjects(prefix)
	if err != nil {
		return fmt.Errorf("shared.guard_prefix = %q: %w", prefix, err)
	}
	own, err := wire.NewSubjects(c.NATS.SubjectPrefix)
	switch {
	case err != nil:
		return fmt.Errorf("nats.subject_prefix = %q: %w", c.NATS.SubjectPrefix, err)
	case !c.Shared.Enabled:
		return fmt.Errorf("shared.guard_prefix = %q: it needs shared.enabled = true", prefix)
	case own.Meets(common):
		return fmt.Errorf("shared.guard_prefix = %q: its subjects %s.guard.> and %s.node.> would be below nats.subject_prefix = %q; allowed is a prefix beside it or above it", prefix, prefix, prefix, own.Prefix())
	}
	for _, reply := range c.NATS.ReplyPrefixes {
		if err := common.CheckReplyPrefix(reply); err != nil {
			return fmt.Errorf("nats.reply_prefixes beside shared.guard_prefix: %w", err)
		}
	}
	return nil
}

// Bounds of [cluster].
const (
	maxShards = 256
	// minFailoverMs is more than the two seconds after which an owner that cannot write
	// delivers no more.
	minFailoverMs, maxFailoverMs = 2_500, 60_000
	safeReplicas                 = 3 // outlive the loss of one server
	minLogBytes                  = 64 << 20
)

var natsVersion = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+[-+.A-Za-z0-9]*$`)

func (c *Config) checkClusterOfNodes() error {
	k, e := &c.Cluster, &c.NATS.Embedded
	if !plainName(k.Name) {
		return fmt.Errorf("cluster.name = %q: %s", k.Name, plainNames)
	}
	if k.Node != "" && !plainName(k.Node) {
		return fmt.Errorf("cluster.node = %q: %s, or empty for the host name", k.Node, plainNames)
	}
	if err := cmp.Or(
		within("cluster.shards", k.Shards, 1, maxShards),
		within("cluster.failover_ms", k.FailoverMs, minFailoverMs, maxFailoverMs),
		within("cluster.replicas", k.Replicas, 1, maxReplicas),
		within("cluster.log_bytes", cmp.Or(k.LogBytes, minLogBytes), minLogBytes, 1<<50),
	); err != nil {
		return err
	}
	for _, v := range k.AllowNATS {
		if !natsVersion.MatchString(v) {
			return fmt.Errorf("cluster.allow_nats has %q: allowed are versions of nats-server, such as 2.12.6", v)
		}
	}
	for _, r := range k.Require {
		if err := oneOf("cluster.require", r, RequireVersion, RequireSync); err != nil {
			return err
		}
	}
	for i, text := range k.Monitoring {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			return fmt.Errorf("cluster.monitoring: entry %d is not the URL of a NATS server's monitoring, such as http://nats-1:8222", i+1) // it may have a password
		}
	}
	switch {
	case k.Replicas < safeReplicas && !k.AllowR1:
		return fmt.Errorf("cluster.replicas = %d: with fewer than %d the loss of a server can lose confirmed messages; set cluster.allow_r1 = true to allow it", k.Replicas, safeReplicas)
	case !k.Enabled || c.NATS.URL != "":
		return nil
	case !e.JetStream:
		return errors.New("cluster.enabled = true: the embedded NATS server has no JetStream; set nats.embedded.jetstream = true, or nats.url")
	case k.Replicas > 1 && e.Cluster.Name == "":
		return fmt.Errorf("cluster.replicas = %d: the embedded NATS server is alone; set nats.embedded.cluster.name and routes, or nats.url, or for a single server cluster.replicas = 1 and cluster.allow_r1 = true", k.Replicas)
	}
	return nil
}

func (n *NATSConfig) check() error {
	if err := cmp.Or(n.checkURL(), n.checkLogin(), n.checkPrefixes()); err != nil || n.URL != "" {
		return err
	}
	return n.Embedded.check()
}

func (n *NATSConfig) checkPrefixes() error {
	subjects, err := wire.NewSubjects(n.SubjectPrefix)
	if err != nil {
		return fmt.Errorf("nats.subject_prefix = %q: %w", n.SubjectPrefix, err)
	}
	if len(n.ReplyPrefixes) == 0 {
		return errors.New(`nats.reply_prefixes = []: allowed is at least one, such as "_INBOX."`)
	}
	for _, prefix := range n.ReplyPrefixes {
		if err := subjects.CheckReplyPrefix(prefix); err != nil {
			return fmt.Errorf("nats.reply_prefixes: %w", err)
		}
	}
	return cmp.Or(within("nats.max_header_bytes", int64(n.MaxHeaderBytes), 1<<10, 1<<20), within("nats.max_headers", int64(n.MaxHeaders), 16, 10_000))
}

func (n *NATSConfig) checkURL() error {
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

func (n *NATSConfig) checkLogin() error {
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
		return errors.New("nats.password is set without nats.user: they go together")
	case (n.TLS.Cert == "") != (n.TLS.Key == ""):
		return fmt.Errorf("nats.tls.cert = %q, nats.tls.key = %q: they go together", n.TLS.Cert, n.TLS.Key)
	case n.URL == "" && n.Context == "" && (len(logins) > 0 || n.TLS != TLSConfig{}):
		key := "nats.tls"
		if len(logins) > 0 {
			key = logins[0]
		}
		return fmt.Errorf("%s is set without nats.url: it is for an external NATS server; nats.embedded.user, token, users_file and tls guard the embedded one", key)
	}
	return nil
}

func (e *EmbeddedConfig) check() error {
	if err := required("nats.embedded.host", e.Host, "an address to listen on"); err != nil {
		return err
	}
	if e.Port != -1 && (e.Port < 1 || e.Port > 65_535) {
		return fmt.Errorf("nats.embedded.port = %d: allowed is 1 to 65535, or -1 for any free port", e.Port)
	}
	// Deliveries need 8 KiB for headers, so less than that leaves no message.
	if err := cmp.Or(
		within("nats.embedded.max_payload", e.MaxPayload, 16<<10, 64<<20),
		within("nats.embedded.max_pending", e.MaxPending, 1<<20, 1<<30),
		within("nats.embedded.write_deadline_ms", e.WriteDeadlineMs, 100, 600_000),
		within("nats.embedded.max_connections_per_user", int64(e.MaxConnectionsPerUser), 1, 1_000_000),
	); err != nil {
		return err
	}
	switch {
	case e.Token != "" && e.User != "":
		return errors.New("nats.embedded.user and nats.embedded.token are both set: one way to log in is allowed")
	case (e.User == "") != (e.Password == ""):
		return errors.New("nats.embedded.user and nats.embedded.password go together")
	case e.UsersFile != "" && (e.User != "" || e.Token != ""):
		return errors.New("nats.embedded.users_file is set beside nats.embedded.user or token: one way to log in is allowed")
	case e.Account != "" && e.UsersFile == "":
		return fmt.Errorf("nats.embedded.account = %q: it is one of nats.embedded.users_file, which is not set", e.Account)
	case (e.TLS.Cert == "") != (e.TLS.Key == ""):
		return fmt.Errorf("nats.embedded.tls.cert = %q, nats.embedded.tls.key = %q: they go together", e.TLS.Cert, e.TLS.Key)
	case e.TLS.CA != "" && e.TLS.Cert == "":
		return fmt.Errorf("nats.embedded.tls.ca = %q: it is for the certificates of clients and needs nats.embedded.tls.cert and key", e.TLS.CA)
	case e.JetStreamDir != "" && !e.JetStream:
		return fmt.Errorf("nats.embedded.jetstream_dir = %q: it needs nats.embedded.jetstream", e.JetStreamDir)
	case e.JetStreamSync != "" && !e.JetStream:
		return fmt.Errorf("nats.embedded.jetstream_sync = %q: it needs nats.embedded.jetstream", e.JetStreamSync)
	}
	return cmp.Or(oneOf("nats.embedded.jetstream_sync", cmp.Or(e.JetStreamSync, syncAlways), syncAlways, syncInterval), e.checkCluster())
}

// maxServerName is more than any host name has.
const maxServerName = 256 // bytes

func (e *EmbeddedConfig) checkCluster() error {
	c := &e.Cluster
	guarded := e.User != "" || e.Token != "" || e.UsersFile != "" || e.TLS.CA != ""
	switch {
	case c.Name == "" && len(c.Routes) > 0:
		return errors.New("nats.embedded.cluster.routes is set without nats.embedded.cluster.name: the servers of a cluster have the same name there")
	case c.Name == "":
		return nil
	case !plainName(c.Name):
		return fmt.Errorf("nats.embedded.cluster.name = %q: %s", c.Name, plainNames)
	case c.ServerName != "" && (len(c.ServerName) > maxServerName || strings.ContainsFunc(c.ServerName, func(r rune) bool { return r <= ' ' || r > '~' })):
		return fmt.Errorf("nats.embedded.cluster.server_name = %q: allowed are at most %d ASCII characters without spaces, or empty for host name and port", c.ServerName, maxServerName)
	case (c.User == "") != (c.Password == ""):
		return errors.New("nats.embedded.cluster.user and nats.embedded.cluster.password go together")
	case guarded && c.User == "":
		return errors.New("nats.embedded.cluster.user is missing: clients have to log in, and without it anyone who reaches nats.embedded.cluster.listen could do anything as a server")
	case len(c.Routes) == 0:
		return errors.New("nats.embedded.cluster.routes = []: allowed are host:port of the servers of the cluster, at least one")
	}
	err := fixedAddress("nats.embedded.cluster.listen", c.Listen)
	for _, route := range c.Routes {
		err = cmp.Or(err, fixedAddress("nats.embedded.cluster.routes", route))
	}
	return err
}

// plainName reports whether a name may be part of names of servers, streams and
// subjects.
func plainName(name string) bool {
	return name != "" && len(name) <= maxPlainName && !strings.ContainsFunc(name, func(r rune) bool { return !plainRune(r) })
}

func plainRune(r rune) bool {
	return r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

const (
	maxPlainName = 128 // bytes
	plainNames   = "allowed are letters, digits, _ and -, at most 128"
)

// fixedAddress wants an address that others can be told.
func fixedAddress(key, v string) error {
	host, port, err := net.SplitHostPort(v)
	if n, bad := strconv.Atoi(port); err != nil || bad != nil || n < 1 || n > 65_535 || strings.ContainsAny(host, "/@ ") {
		return fmt.Errorf("%s = %q: allowed is host:port, with a port from 1 to 65535", key, redacted(v))
	}
	return nil
}

// redacted hides what may be a password in an address.
func redacted(addr string) string {
	if at := strings.LastIndexByte(addr, '@'); at >= 0 {
		return "..." + addr[at:]
	}
	return addr
}

func (c *Config) checkQueues() error {
	seen := make(map[string]bool, len(c.Queues))
	for i := range c.Queues {
		q := &c.Queues[i]
		if err := checkKey("queue", "name", i, q.Name, seen); err != nil {
			return err
		}
		if err := q.Validate(); err != nil {
			return fmt.Errorf("queue %q: %w", q.Name, err)
		}
	}
	return nil
}

func (c *Config) checkThrottles() error {
	return checkTables("throttle", c.Throttles, ThrottleTable.name, func(i int, t *ThrottleTable) error {
		if star := strings.IndexByte(t.Key, '*'); star >= 0 && star != len(t.Key)-1 {
			return fmt.Errorf("throttle[%d].key = %q: allowed is one '*', at the end", i, t.Key)
		}
		if _, err := t.Limits(); err != nil {
			return fmt.Errorf("throttle[%s]%w", t.Key, err)
		}
		return nil
	})
}

func (c *Config) checkCircuits() error {
	if err := c.CircuitDefaults.check(1); err != nil {
		return fmt.Errorf("circuit_defaults.%w", err)
	}
	return checkTables("circuit", c.Circuits, CircuitTable.name, func(i int, t *CircuitTable) error {
		if strings.Contains(t.Key, "*") {
			return fmt.Errorf("circuit[%d].key = %q: allowed is a whole key; there are no prefixes of circuits", i, t.Key)
		}
		if err := t.check(0); err != nil {
			return fmt.Errorf("circuit[%s].%w", t.Key, err)
		}
		return checkExpired("circuit", t.Key, t.Expired)
	})
}

// checkRules compiles them and checks the policies that queues name.
func (c *Config) checkRules() error {
	r, err := rules.Compile(c.RetryPolicies, c.ErrorRules)
	if err != nil {
		return err
	}
	for i := range c.Queues {
		if q := &c.Queues[i]; !r.HasPolicy(q.RetryPolicy) {
			return fmt.Errorf("queue[%s].retry_policy = %q: %s", q.Name, q.RetryPolicy, r.AllowedPolicies())
		}
	}
	return nil
}

// CheckGuards checks the guard tables.
func (c *Config) CheckGuards() error {
	return checkTables("guard", c.Guards, GuardTable.name, func(_ int, t *GuardTable) error {
		for _, key := range append([]string{t.Key}, t.With...) {
			if err := checkPattern("guard["+t.Key+"]", key); err != nil {
				return err
			}
		}
		return checkExpired("guard", t.Key, t.Expired)
	})
}

func checkRoutes(tables []RouteTable) error {
	routes := make(map[string]int)
	return checkTables("route", tables, RouteTable.name, func(_ int, t *RouteTable) error {
		where := "route[" + t.name() + "]"
		if err := cmp.Or(wire.CheckName("choice", t.Choice, wire.MaxPolicyName), wire.CheckName("name", t.Name, wire.MaxPolicyName)); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		for _, key := range append(slices.Clone(t.ThrottleKeys), t.CircuitKey) {
			if key != "" && wire.CheckKey(key) != nil || len(key) > maxGateKey {
				return fmt.Errorf("%s: key %q: allowed are 1 to %d bytes without control characters", where, key, maxGateKey)
			}
		}
		switch n := len(t.ThrottleKeys); {
		case n > maxRouteKeys:
			return fmt.Errorf("%s.throttle_keys has %d keys: allowed are at most %d", where, n, maxRouteKeys)
		case slices.Contains(t.ThrottleKeys, ""):
			return fmt.Errorf("%s.throttle_keys has an empty key", where)
		case !(t.Weight == 0 || t.Weight >= 1 && t.Weight <= maxRouteWeight): // NaN, too
			return fmt.Errorf("%s.weight = %v: allowed are 1 to %d, or 0 for none", where, t.Weight, maxRouteWeight)
		}
		if routes[t.Choice]++; routes[t.Choice] > maxRoutes {
			return fmt.Errorf("%s: choice %s has more than %d routes", where, t.Choice, maxRoutes)
		}
		return nil
	})
}

// checkPattern wants a key, or what keys begin with and a '*'.
func checkPattern(where, key string) error {
	if key == "" || len(key) > maxGateKey || strings.ContainsFunc(key, unicode.IsControl) || !utf8.ValidString(key) {
		return fmt.Errorf("%s: key %q: allowed are 1 to %d bytes of text without control characters", where, key, maxGateKey)
	}
	if star := strings.IndexByte(key, '*'); star >= 0 && star != len(key)-1 {
		return fmt.Errorf("%s: key %q: allowed is one '*', at the end", where, key)
	}
	return nil
}

// checkTables checks the number and the keys of tables about gates, and each table.
func checkTables[T any](table string, list []T, name func(T) string, check func(i int, t *T) error) error {
	if len(list) > maxGateTables {
		return fmt.Errorf("%s: %d tables: allowed are at most %d", table, len(list), maxGateTables)
	}
	seen := make(map[string]bool, len(list))
	for i := range list {
		switch key := name(list[i]); {
		case len(key) > maxGateKey:
			return fmt.Errorf("%s[%d].key has %d bytes: allowed are at most %d", table, i, len(key), maxGateKey)
		case !utf8.ValidString(key) || strings.ContainsFunc(key, unicode.IsControl):
			return fmt.Errorf("%s[%d].key = %q: allowed is text without control characters", table, i, key)
		}
		if err := checkKey(table, "key", i, name(list[i]), seen); err != nil {
			return err
		}
		if err := check(i, &list[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkKey wants a key of table number i that is not in seen, and adds it.
func checkKey(table, field string, i int, key string, seen map[string]bool) error {
	if key == "" {
		return fmt.Errorf("%s[%d].%s is missing: every [[%s]] needs one", table, i, field, table)
	}
	if seen[key] {
		return fmt.Errorf("%s %q is declared twice: one [[%s]] per %s is allowed", table, key, table, field)
	}
	seen[key] = true
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

// number writes v as it stands in a file.
func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
