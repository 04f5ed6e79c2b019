package queuecmd

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
)

// kind is the type of a setting, which determines how its flag is parsed.
type kind int

const (
	text kind = iota
	count
	ms
	rate
	fraction
	script // a file, or - for standard input
	list
)

// setting is a setting of a queue and its flag. An empty key means the flag's name with
// underscores.
type setting struct {
	flag     string
	kind     kind
	key      string
	standard int64 // default of a count, of ms or of a fraction
	usage    string
}

// settings are the flags of fila queue create and update.
func settings() []setting {
	defaults := wire.DefaultQueueSettings("")
	return []setting{
		{flag: "on-enqueue", kind: script, usage: "Lua `file` with on_enqueue; - is standard input, \"\" removes the hook"},
		{flag: "on-failure", kind: script, usage: "Lua `file` with on_failure; - is standard input, \"\" removes the hook"},
		{flag: "visibility-timeout", kind: ms, standard: defaults.VisibilityTimeoutMs, usage: "length of a lease"},
		{flag: "max-deliveries", kind: count, usage: "dead-letter after this number of deliveries; 0 is no limit (default 20, or the decision of on_failure)"},
		{flag: "max-depth", kind: count, usage: "most messages in the queue, beyond which enqueues are refused; 0 is no limit"},
		{flag: "max-bytes", kind: count, usage: "most bytes in the queue; 0 is no limit"},
		{flag: "dedupe-window", kind: ms, standard: defaults.DedupeWindowMs, usage: "how long a Nats-Msg-Id is remembered; 0 is off"},
		{flag: "quantum", kind: count, standard: defaults.Quantum, usage: "deficit that a turn adds to a flow of weight 1"},
		{flag: "fairness-header", usage: "`header` with the fairness key, or a template such as {tenant}/{user}"},
		{flag: "weight-header", usage: "`header` with the weight"},
		{flag: "throttle-header", kind: list, key: "throttle_headers", usage: "`header` with a throttle key, or a template such as tenant:{tenant}; may be repeated"},
		{flag: "lua-timeout", kind: ms, usage: "time limit of a hook; 0 is fila's default"},
		{flag: "lua-memory-limit", kind: count, key: "lua_memory_limit_bytes", usage: "memory limit of a hook in `bytes`; 0 is fila's default"},
		{flag: "lua-circuit-breaker-threshold", kind: count, usage: "failures in a row that bypass a hook; 0 is fila's default"},
		{flag: "lua-circuit-breaker-cooldown", kind: ms, usage: "how long a failing hook is bypassed; 0 is fila's default"},
		{flag: "circuit-header", usage: "`header` with the circuit key"},
		{flag: "route-header", usage: "`header` with a choice of routes"},
		{flag: "priority-header", usage: "`header` with the priority within the flow, 0 to 9"},
		{flag: "priority-age", kind: ms, usage: "a message gains one priority for each wait of this length; 0 is 1m"},
		{flag: "priority-reserved", kind: count, usage: "messages of this `priority` and above always go before others of their flow; 0 is none"},
		{flag: "starve-after", kind: ms, usage: "report a flow as starving if it has a ready message, and fila delivers none of its messages but others for this time, at least 1s; 0 is never"},
		{flag: "retry-policy", usage: "`name` of a retry policy of config.toml; \"\" is --retry-initial, --retry-max and --retry-jitter"},
		{flag: "retry-initial", kind: ms, standard: defaults.RetryInitialMs, usage: "wait before the first retry, doubled with every attempt; 0 is none"},
		{flag: "retry-max", kind: ms, standard: defaults.RetryMaxMs, usage: "the longest wait before a retry"},
		{flag: "retry-jitter", kind: fraction, standard: int64(defaults.RetryJitter), usage: "random `fraction` of the wait before a retry, 0 to 1"},
		{flag: "ordering", usage: "`key`: one message of a fairness key at a time, in order; \"\": fair order"},
		{flag: "on-blocked", usage: "with --ordering key, while the first message of a key is blocked: wait (default) blocks the key, skip lets later ones pass"},
		{flag: "max-pending-per-key", kind: count, usage: "most unfinished messages of a fairness key; 0 is no limit"},
		{flag: "enqueue-rate", kind: rate, usage: "accept `n` messages per second, such as 100 or 0.5; \"\" is no limit"},
		{flag: "enqueue-burst", kind: count, usage: "burst of --enqueue-rate; 0 is the larger of 1 and the rate"},
		{flag: "enqueue-rate-per-key", kind: rate, usage: "accept `n` messages per second of each fairness key"},
		{flag: "enqueue-burst-per-key", kind: count, usage: "burst of --enqueue-rate-per-key"},
		{flag: "enqueue-schedules", usage: "`refuse` refuses schedules by enqueues; \"\" and allow accept them"},
		{flag: "max-failures-per-key", kind: count, usage: "pause a fairness key after more failures within the window; 0 is no limit"},
		{flag: "failure-window", kind: ms, usage: "the window of --max-failures-per-key; 0 is 1m"},
		{flag: "failure-hold", kind: ms, usage: "length of that pause; 0 is until it is resumed"},
	}
}

// addSettings adds the flags of all settings. The returned function returns the given ones.
func addSettings(cmd *cobra.Command) func() (client.QueueChanges, error) {
	fs, values, keys := cmd.Flags(), map[string]func() (any, error){}, map[string]string{}
	all := settings()
	for _, s := range all {
		keys[s.flag] = s.key
		if s.key == "" {
			keys[s.flag] = strings.ReplaceAll(s.flag, "-", "_")
		}
		switch s.kind {
		case count:
			n := fs.Int64(s.flag, s.standard, s.usage)
			values[s.flag] = func() (any, error) { return *n, nil }
		case fraction:
			v := fs.Float64(s.flag, float64(s.standard), s.usage)
			values[s.flag] = func() (any, error) { return *v, nil }
		case ms:
			keys[s.flag] += "_ms"
			v := terminal.Millis(s.standard)
			fs.Var(&v, s.flag, s.usage)
			values[s.flag] = func() (any, error) { return int64(v), nil }
		case list:
			headers := fs.StringArray(s.flag, nil, s.usage)
			values[s.flag] = func() (any, error) {
				if len(*headers) == 1 && (*headers)[0] == "" {
					return []string{}, nil // "" removes all
				}
				return *headers, nil
			}
		default:
			v := fs.String(s.flag, "", s.usage)
			values[s.flag] = func() (any, error) { return readText(cmd.InOrStdin(), s.kind, *v) }
		}
	}
	command.Allow(cmd, "ordering", "key")
	command.Allow(cmd, "on-blocked", "wait", "skip")
	return func() (client.QueueChanges, error) {
		if fs.Lookup("on-enqueue").Value.String() == "-" && fs.Lookup("on-failure").Value.String() == "-" {
			return nil, command.UsageError("--on-enqueue - and --on-failure -: standard input can be read once")
		}
		changes := client.QueueChanges{}
		for _, s := range all {
			if !fs.Changed(s.flag) {
				continue
			}
			value, err := values[s.flag]()
			if err != nil {
				return nil, command.UsageError("--%s: %w", s.flag, err)
			}
			changes[keys[s.flag]] = value
		}
		return changes, nil
	}
}

// maxScript bounds a script from standard input. The hook compiler enforces the lower limit on
// scripts.
const maxScript = 1 << 20

func readText(in io.Reader, kind kind, value string) (string, error) {
	switch {
	case value == "":
		return "", nil
	case kind == rate:
		return value, wire.Rate(value).Check()
	case kind == script && value == "-":
		script, err := io.ReadAll(io.LimitReader(in, maxScript))
		return string(script), err
	case kind == script:
		return config.ReadScript(value)
	}
	return value, nil
}
