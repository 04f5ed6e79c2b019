package queuecmd

import (
	"github.com/spf13/pflag"

	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
)

// gateFlags are the flags of the settings of a queue about order, failures and
// what producers may send.
type gateFlags struct {
	circuit, policy, ordering, onBlocked string
	pendingPerKey                        int64
	rate, ratePerKey                     string
	burst, burstPerKey                   int64
	failures                             int64
	window, hold                         terminal.Millis
}

func (q *queueFlags) addGates(fs *pflag.FlagSet) {
	g := &q.gates
	text := func(flag, key string, p *string, usage string) {
		fs.StringVar(p, flag, "", usage)
		q.keys[flag], q.values[flag] = key, func() (any, error) { return *p, nil }
	}
	number := func(flag, key string, p *int64, usage string) {
		fs.Int64Var(p, flag, 0, usage)
		q.keys[flag], q.values[flag] = key, func() (any, error) { return *p, nil }
	}
	ms := func(flag, key string, p *terminal.Millis, usage string) {
		fs.Var(p, flag, usage)
		q.keys[flag], q.values[flag] = key, func() (any, error) { return int64(*p), nil }
	}
	rate := func(flag, key string, p *string, usage string) {
		fs.StringVar(p, flag, "", usage)
		q.keys[flag], q.values[flag] = key, func() (any, error) {
			if *p == "" {
				return *p, nil
			}
			return *p, client.Rate(*p).Check()
		}
	}
	text("circuit-header", "circuit_header", &g.circuit, "`header` that is the circuit key, when there is no on_enqueue")
	text("retry-policy", "retry_policy", &g.policy, "`name` of the retry policy of config.toml for failures that nothing else decides; \"\" retries at once")
	text("ordering", "ordering", &g.ordering, "`key` delivers one message of a fairness key at a time, in order; \"\" is fair order")
	text("on-blocked", "on_blocked", &g.onBlocked, "with --ordering key, while a key's first message waits: wait (the default) holds the key, skip lets later ones pass")
	number("max-pending-per-key", "max_pending_per_key", &g.pendingPerKey, "refuse messages beyond this many unfinished ones of a fairness key; 0 is no limit")
	rate("enqueue-rate", "enqueue_rate", &g.rate, "messages per second taken from producers, `n` such as 100 or 0.5; \"\" is no limit")
	number("enqueue-burst", "enqueue_burst", &g.burst, "how many of them at once; 0 is the larger of 1 and the rate")
	rate("enqueue-rate-per-key", "enqueue_rate_per_key", &g.ratePerKey, "messages per second taken of each fairness key, `n`; \"\" is no limit")
	number("enqueue-burst-per-key", "enqueue_burst_per_key", &g.burstPerKey, "how many of them at once; 0 is the larger of 1 and the rate")
	number("max-failures-per-key", "max_failures_per_key", &g.failures, "hold a fairness key after so many failures within the window; 0 is no limit")
	ms("failure-window", "failure_window_ms", &g.window, "the window of --max-failures-per-key; 0 is 1m")
	ms("failure-hold", "failure_hold_ms", &g.hold, "how long a key is held after too many failures; 0 is until it is resumed")
}
