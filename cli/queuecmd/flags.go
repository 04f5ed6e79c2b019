package queuecmd

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/sidecar/config"
)

// kind says what the value of a setting is, and so how its flag is read.
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

// setting is a setting of a queue and its flag. Where key is empty it is the
// flag's name, with underscores.
type setting struct {
	flag     string
	kind     kind
	key      string
	standard int64 // default of a count, of ms or of a fraction
	usage    string
}

// settings are the flags of fila queue create and update.
func settings() []setting {
	defaults := client.DefaultQueueSettings("")
	return []setting{
		{flag: "on-enqueue", kind: script, usage: "Lua `file` with the on_enqueue hook; - reads standard input, \"\" removes it"},
		{flag: "on-failure", kind: script, usage: "Lua `file` with the on_failure hook; - reads standard input, \"\" removes it"},
		{flag: "visibility-timeout", kind: ms, standard: defaults.VisibilityTimeoutMs, usage: "how long a delivered message is leased"},
		{flag: "max-deliveries", kind: count, usage: "dead-letter after so many deliveries; 0 is no limit (default 20, or what on_failure decides)"},
		{flag: "max-depth", kind: count, usage: "refuse messages beyond this many; 0 is no limit"},
		{flag: "max-bytes", kind: count, usage: "refuse messages beyond this many bytes in the queue; 0 is no limit"},
		{flag: "dedupe-window", kind: ms, standard: defaults.DedupeWindowMs, usage: "how long a Nats-Msg-Id is remembered; 0 is not at all"},
		{flag: "quantum", kind: count, standard: defaults.Quantum, usage: "what a turn adds to a flow of weight 1"},
		{flag: "fairness-header", usage: "`header` that is the fairness key, or a template such as {tenant}/{user}, in place of on_enqueue"},
		{flag: "weight-header", usage: "`header` that is the weight, in place of on_enqueue"},
		{flag: "throttle-header", kind: list, key: "throttle_headers", usage: "`header` that is a throttle key, or a template such as tenant:{tenant}, in place of on_enqueue; may be repeated"},
		{flag: "lua-timeout", kind: ms, usage: "time limit of a hook; 0 is the default of fila"},
		{flag: "lua-memory-limit", kind: count, key: "lua_memory_limit_bytes", usage: "memory limit of a hook in `bytes`; 0 is the default of fila"},
		{flag: "lua-circuit-breaker-threshold", kind: count, usage: "failures in a row that bypass a hook; 0 is the default of fila"},
		{flag: "lua-circuit-breaker-cooldown", kind: ms, usage: "how long a failing hook is bypassed; 0 is the default of fila"},
		{flag: "circuit-header", usage: "`header` that is the circuit key, in place of on_enqueue"},
		{flag: "priority-header", usage: "`header` that is the priority within the flow, 0 to 9, in place of on_enqueue"},
		{flag: "priority-age", kind: ms, usage: "a message counts as one priority higher for each such wait; 0 is 1m"},
		{flag: "priority-reserved", kind: count, usage: "messages of this `priority` and above always go before others of their flow; 0 is none"},
		{flag: "starve-after", kind: ms, usage: "report a flow as starving if nothing of it is delivered for this time, at least 1s, though it could send and other flows are delivered; 0 is never"},
		{flag: "retry-policy", usage: "`name` of the retry policy of config.toml if nothing else decides; \"\" is --retry-initial, --retry-max and --retry-jitter"},
		{flag: "retry-initial", kind: ms, standard: defaults.RetryInitialMs, usage: "wait before the first retry if nothing else decides, doubled with every attempt; 0 is no wait"},
		{flag: "retry-max", kind: ms, standard: defaults.RetryMaxMs, usage: "the longest of these waits"},
		{flag: "retry-jitter", kind: fraction, standard: int64(defaults.RetryJitter), usage: "`fraction` of these waits that is random, 0 to 1; with 1 a wait is anything from none to all of it"},
		{flag: "ordering", usage: "`key` delivers one message of a fairness key at a time, in order; \"\" is fair order"},
		{flag: "on-blocked", usage: "with --ordering key, what happens while the first message of a key is blocked: wait (the default) blocks the key, skip lets later messages pass"},
		{flag: "max-pending-per-key", kind: count, usage: "refuse messages beyond this many unfinished ones of a fairness key; 0 is no limit"},
		{flag: "enqueue-rate", kind: rate, usage: "messages per second taken from producers, `n` such as 100 or 0.5; \"\" is no limit"},
		{flag: "enqueue-burst", kind: count, usage: "messages that --enqueue-rate lets in at once; 0 is the larger of 1 and the rate"},
		{flag: "enqueue-rate-per-key", kind: rate, usage: "messages per second taken of each fairness key, `n`; \"\" is no limit"},
		{flag: "enqueue-burst-per-key", kind: count, usage: "messages that --enqueue-rate-per-key lets in at once; 0 is the larger of 1 and the rate"},
		{flag: "enqueue-schedules", usage: "`refuse` takes no schedules by enqueues; \"\" and allow do"},
		{flag: "max-failures-per-key", kind: count, usage: "hold a fairness key after so many failures within the window; 0 is no limit"},
		{flag: "failure-window", kind: ms, usage: "the window of --max-failures-per-key; 0 is 1m"},
		{flag: "failure-hold", kind: ms, usage: "how long a key is held after too many failures; 0 is until it is resumed"},
	}
}

// addSettings adds the flags of all settings. The function that it returns has
// the settings that were given.
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
					return []string{}, nil // "" removes them all
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

// maxScript bounds what is read as a script from standard input; the limit on
// scripts themselves is lower and is the hook compiler's to enforce.
const maxScript = 1 << 20

func readText(in io.Reader, kind kind, value string) (string, error) {
	switch {
	case value == "":
		return "", nil
	case kind == rate:
		return value, client.Rate(value).Check()
	case kind == script && value == "-":
		script, err := io.ReadAll(io.LimitReader(in, maxScript))
		return string(script), err
	case kind == script:
		return config.ReadScript(value)
	}
	return value, nil
}
