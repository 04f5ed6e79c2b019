package attention

import (
	"strings"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Condition is something that an operator has to know of while it holds.
type Condition struct {
	Name     string
	Severity string
	Title    string   // what is wrong, in a few words
	Alerts   []string // of deploy/prometheus that watch the same
	Holds    string   // when it holds; docs/attention.md repeats it

	// whom says whom a finding hurts: {hurt} is its number of messages and tenants. nobody
	// is the sentence without messages.
	whom, nobody string

	// follows reports that a change of the two minutes before may have caused it, in fila or outside.
	follows bool

	find func(v *view, add func(api.Finding)) // all findings, without what the table says
}

// Conditions is the table of all conditions. Of equal severity, the first is the worst.
var Conditions []Condition

func init() { // find refers to functions that need the table
	Conditions = []Condition{
		{
			Name: "log-lost", Severity: api.SeverityCritical, Title: "The log of a shard lacks confirmed messages",
			Alerts: []string{"FilaLogLost"}, Holds: "A node of the cluster knows of confirmed records that the log of a shard lacks.",
			nobody: "All queues of the shard: no node serves it.", find: logLost,
		},
		{
			Name: "shard-without-owner", Severity: api.SeverityCritical, Title: "No node serves a shard",
			Alerts: []string{"FilaShardWithoutOwner"}, Holds: "No node of the cluster owns a shard.",
			nobody: "All queues of the shard: messages are neither accepted nor delivered.", find: shardsWithoutOwner,
		},
		{
			Name: "disk-low", Severity: api.SeverityCritical, Title: "The disk is nearly full",
			Alerts: []string{"FilaDiskLow"}, Holds: "The disk of the store has less than store.min_free_bytes free.",
			nobody: "All producers: fila refuses new messages. It still delivers the stored ones.", find: diskLow,
		},
		{
			Name: "no-consumers", Severity: api.SeverityCritical, Title: "Ready messages, no consumers",
			Alerts: []string{"FilaNoConsumers"}, Holds: "A queue has ready messages and no registered consumer or waiting fetch.",
			whom: "{hurt} wait.", follows: true, find: noConsumers,
		},
		{
			Name: "hook-failing", Severity: api.SeverityWarning, Title: "A hook fails or is bypassed",
			Alerts: []string{"FilaHookBypassed"}, Holds: "The last run of a hook failed, its circuit is not closed, or a run failed or was bypassed in the last two minutes.",
			nobody: "All tenants of the queue.", find: failingHooks,
		},
		{
			Name: "dead-letters-rise", Severity: api.SeverityWarning, Title: "Dead letters rise",
			Alerts: []string{"FilaDeadLettersRise"}, Holds: "More than ten messages of a queue became dead letters in the last 15 minutes, and dead letters are left.",
			whom: "{hurt} became dead letters in the last 15 minutes.", follows: true, find: risingDeadLetters,
		},
		{
			Name: "circuit-open", Severity: api.SeverityWarning, Title: "A circuit is open",
			Alerts: []string{"FilaCircuitOpened", "FilaCircuitOpen"}, Holds: "A circuit is open or half-open, or has opened more than once in the last ten minutes, the last time less than a minute ago.",
			whom: "{hurt} are blocked.", nobody: "No message is blocked at the moment.", find: openCircuits,
		},
		{
			Name: "safety-limit", Severity: api.SeverityWarning, Title: "A safety limit has paused something",
			Alerts: []string{"FilaSafetyLimitExceeded"}, Holds: "A pause that max_failures_per_key of a queue or max_failures of a circuit has begun is in force.",
			whom: "{hurt} are blocked.", nobody: "No message is blocked at the moment.", find: safetyPauses,
		},
		{
			Name: "tenant-starved", Severity: api.SeverityWarning, Title: "A tenant starves",
			Alerts: []string{"FilaQuietTenantStarved"}, Holds: "A fairness key has a ready message, and fila delivered none of its messages but others for starve_after_ms.",
			whom: "{hurt} wait.", find: starvedTenants,
		},
		{
			Name: "noisy-tenant", Severity: api.SeverityWarning, Title: "A tenant has more than its share",
			Alerts: []string{"FilaQuietTenantStarved"}, Holds: "A fairness key has more of the consumers than its weight entitles it to, and a ready message of another key has waited for a second or more.",
			whom: "{hurt} wait.", find: noisyTenants,
		},
		{
			Name: "oldest-age", Severity: api.SeverityWarning, Title: "Ready messages get older",
			Alerts: []string{"FilaOldestMessage"}, Holds: "A queue with consumers has ready messages, and its oldest message is older than an hour, or older than five minutes and was not replaced by a younger one in the last five.",
			whom: "{hurt} are ready.", follows: true, find: oldMessages,
		},
		{
			Name: "leases-expire", Severity: api.SeverityWarning, Title: "Leases expire",
			Alerts: []string{"FilaLeasesExpire"}, Holds: "More than ten leases of a queue, and more than 5 % of its deliveries, expired in the last five minutes.",
			whom: "{hurt} were delivered and not answered in time.", follows: true, find: expiringLeases,
		},
		{
			Name: "refused", Severity: api.SeverityWarning, Title: "fila refuses requests",
			Alerts: []string{"FilaRefuses"}, Holds: "fila refused more than a hundred requests of a queue in the last ten minutes.",
			whom: "The producers or consumers of the queue: {hurt} refused in the last ten minutes.", follows: true, find: refusals,
		},
		{
			Name: "schedule-late", Severity: api.SeverityWarning, Title: "A schedule is late",
			Alerts: []string{"FilaScheduleLate"}, Holds: "A run of a schedule has been due for more than a minute.",
			nobody: "The consumers of the messages that the schedule makes.", find: lateSchedules,
		},
		{
			Name: "cluster-degraded", Severity: api.SeverityWarning, Title: "A NATS server does not show what the cluster requires",
			Alerts: []string{"FilaClusterDegraded"}, Holds: "A NATS server with replicas of the logs does not show what cluster.require asks for.",
			nobody: "Nobody yet: confirmed messages may not survive the failure of a server.", find: degradedServers,
		},
		{
			Name: "standby-lags", Severity: api.SeverityWarning, Title: "A standby lags",
			Alerts: []string{"FilaStandbyLags"}, Holds: "The copy of a shard at a node that does not own it is more than five seconds behind, or cannot follow the log.",
			nobody: "Nobody yet: a takeover by this node would take longer.", find: laggingStandbys,
		},
		{
			Name: "shared-degraded", Severity: api.SeverityWarning, Title: "Shared limits are degraded",
			Alerts: []string{"FilaSharedDegraded"}, Holds: "A fila cannot reach the bucket of shared circuits and limits.",
			whom:   "{hurt} are blocked by shared limits and circuits, about which this fila decides alone.",
			nobody: "Nobody yet: this fila decides alone about shared circuits, and about its part of shared limits.", find: sharedDegraded,
		},
		{
			Name: "limit-nearly-reached", Severity: api.SeverityWarning, Title: "A limit is nearly reached",
			Alerts: []string{"FilaLimitNearlyReached"}, Holds: "A limit of the process is used to more than 80 %.",
			nobody: "Nobody yet: fila refuses what exceeds the limit.", find: nearLimits,
		},
		{
			Name: "held-by-limit", Severity: api.SeverityWarning, Title: "Messages wait for a limit",
			Alerts: []string{"FilaHeldByLimit"}, Holds: "A throttle blocks messages of a queue, and has blocked the first of them for more than a minute. It is `info` while they do not get more or older.",
			whom: "{hurt} are blocked.", find: heldByLimits,
		},
		{
			Name: "dead-letters", Severity: api.SeverityInfo, Title: "Dead letters wait for an operator",
			Alerts: []string{"FilaDeadLetters"}, Holds: "The dead letter queue of a queue is not empty, and dead letters do not rise.",
			whom: "{hurt} failed for good.", find: deadLetters,
		},
		{
			Name: "paused", Severity: api.SeverityInfo, Title: "A pause is in force",
			Alerts: []string{"FilaPaused"}, Holds: "A queue, a fairness key, a throttle key or a circuit is paused by hand.",
			whom: "{hurt} are blocked.", nobody: "No message is blocked at the moment.", find: pauses,
		},
	}
}

// NotConditions are the alerts of deploy/prometheus that no condition watches, with the reason.
var NotConditions = map[string]string{
	"FilaDown":           "a fila that does not answer cannot say so: fila status ends with its exit code for that",
	"FilaNotReady":       "the verbs do not answer before a fila is ready: the overview and fila status show that first",
	"FilaDiskFillsUp":    "the forecast needs hours of history, which Prometheus has",
	"FilaSlowCommits":    "the quantile needs histograms of ten minutes, which Prometheus has",
	"FilaLimiterRejects": "it counts how often limits took effect, which is their purpose: held-by-limit says who waits",
	"FilaTakeover":       "it is over when it is seen: the events have it",
}

// MayFollow reports whether a change may have caused the findings of a condition about a queue.
func MayFollow(condition string) bool {
	c := conditionOf(&api.Finding{Condition: condition})
	return c != nil && c.follows
}

// whomOf says whom a finding hurts.
func (c *Condition) whomOf(f *api.Finding) string {
	if f.Messages == 0 || c.whom == "" {
		return c.nobody
	}
	hurt := wire.Plural(f.Messages, "message")
	if f.Condition == "refused" {
		hurt = wire.Plural(f.Messages, "request")
	}
	if f.Tenants > 0 {
		hurt += " of " + wire.Plural(int64(f.Tenants), "tenant")
	}
	text := strings.ReplaceAll(c.whom, "{hurt}", hurt)
	if f.Messages == 1 {
		text = singular.Replace(text)
	}
	return text
}

// singular makes the sentences of the table true for one message.
var singular = strings.NewReplacer(" wait.", " waits.", " are ", " is ", " were ", " was ", " became dead letters", " became a dead letter")
