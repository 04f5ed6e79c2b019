package api

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/filaq/fila/wire"
)

// Bounds of requests about queues.
const (
	DefaultListLimit    = 100
	MaxListLimit        = 1000
	DefaultInspectFlows = 20
	MaxInspectFlows     = 1000
	DefaultNoisyLimit   = 20
	MaxNoisyLimit       = 1000
)

// QueueReply answers queue-create and queue-update: the settings of the queue, with
// warnings about settings that probably do not do what is intended.
type QueueReply struct {
	wire.QueueSettings
	Warnings []string `json:"warnings,omitempty"`
}

// QueueDeleteRequest deletes a queue and its dead letter queue.
type QueueDeleteRequest struct {
	Force bool `json:"force,omitempty"` // also if there are messages
}

// QueueDeleteReply answers a [QueueDeleteRequest].
type QueueDeleteReply struct {
	Deleted  int64    `json:"deleted"` // messages, including messages of the dead letter queue
	Warnings []string `json:"warnings,omitempty"`
}

// QueuePurgeRequest removes the messages of a queue that wait.
type QueuePurgeRequest struct {
	After string `json:"after,omitempty"` // next of the previous reply
}

// QueuePurgeReply answers a [QueuePurgeRequest].
type QueuePurgeReply struct {
	Purged int64  `json:"purged"`         // messages that this request removed
	Next   string `json:"next,omitempty"` // after of the next request, if there is more
}

// PurgeCursor is where a purge continues: next of a reply and after of the following
// request.
type PurgeCursor struct{ From, Last uint64 }

func (c PurgeCursor) String() string { return fmt.Sprintf("%d-%d", c.From, c.Last) }

// Cursor returns the cursor in After. The zero value is the beginning of the queue.
func (r *QueuePurgeRequest) Cursor() (c PurgeCursor, ok bool) {
	from, last, _ := strings.Cut(r.After, "-")
	first, err1 := strconv.ParseUint(from, 10, 64)
	until, err2 := strconv.ParseUint(last, 10, 64)
	if err1 != nil || err2 != nil {
		return PurgeCursor{}, r.After == ""
	}
	return PurgeCursor{first, until}, true
}

func (r *QueuePurgeRequest) check() *wire.Error {
	if _, ok := r.Cursor(); !ok {
		return wire.BadField("after", wire.Quote(r.After), "allowed is next of the previous reply")
	}
	return nil
}

// ListRequest asks for a page of a list.
type ListRequest struct {
	After  string `json:"after,omitempty"`  // next of the previous page
	Offset int    `json:"offset,omitempty"` // how many entries behind After to skip
	Limit  int    `json:"limit,omitempty"`  // 1 to 1000, default 100
}

var firstPage = ListRequest{Limit: DefaultListLimit}

// Bounds implements [wire.Bounded].
func (r *ListRequest) Bounds() []wire.Bound { return boundsOfPage(r.Offset, r.Limit) }

func boundsOfPage(offset, limit int) []wire.Bound {
	return []wire.Bound{{Field: "offset", Value: int64(offset), Max: math.MaxInt64}, boundOfLimit(limit)}
}

func boundOfLimit(limit int) wire.Bound {
	return wire.Bound{Field: "limit", Value: int64(limit), Min: 1, Max: MaxListLimit}
}

// QueueListRequest asks for a page of queues, by name.
type QueueListRequest struct {
	ListRequest
	Detail  bool `json:"detail,omitempty"`  // with [QueueDetail]
	Tenants int  `json:"tenants,omitempty"` // how many fairness keys QueueDetail names, 0 to 16
	// Sampled asks for the latest sample of the queues, with [QueueDetail] and 8
	// fairness keys, instead of reading them. If it is old, fila takes a new one first.
	Sampled bool `json:"sampled,omitempty"`
}

// SampledTenants is how many fairness keys of a queue a sample names.
const SampledTenants = 8

// MaxListTenants bounds Tenants of a [QueueListRequest].
const MaxListTenants = 16

// Bounds implements [wire.Bounded].
func (r *QueueListRequest) Bounds() []wire.Bound {
	return append(r.ListRequest.Bounds(), wire.Bound{Field: "tenants", Value: int64(r.Tenants), Max: MaxListTenants})
}

// QueueList answers a [QueueListRequest].
type QueueList struct {
	Total  int            `json:"total"` // of all pages
	Queues []QueueSummary `json:"queues"`
	Next   string         `json:"next,omitempty"` // after of the next request, if there is more
	// Missing are the shards of a cluster that no node serves at the moment. The list
	// does not contain their queues.
	Missing []int `json:"missing_shards,omitempty"`
}

// QueueSummary is a queue in one line. Each message counts in exactly one of Pending,
// Delayed, InFlight and Moving; a pending one is either ready or blocked. Blocked counts the
// pending messages that a pause, a gate or the order of their key blocks.
type QueueSummary struct {
	Name        string `json:"name"`
	Pending     int64  `json:"pending"`
	Ready       int64  `json:"ready"`
	Blocked     int64  `json:"blocked"`
	Parked      int64  `json:"parked"` // the old name of blocked, for one version
	Delayed     int64  `json:"delayed"`
	InFlight    int64  `json:"in_flight"`
	Moving      int64  `json:"moving,omitempty"` // claimed by a job, or being transferred to another queue
	Consumers   int    `json:"consumers"`
	Bytes       int64  `json:"bytes"`         // payloads and headers of all messages
	OldestAgeMs int64  `json:"oldest_age_ms"` // of the oldest unfinished message, 0 if there is none
	DLQ         string `json:"dlq,omitempty"` // absent for a dead letter queue

	// Of a cluster: the queue's shard, and the node that owns it.
	Shard *int   `json:"shard,omitempty"`
	Owner string `json:"owner,omitempty"`

	Detail *QueueDetail `json:"detail,omitempty"` // if requested
}

// QueueDetail counts what happened to a queue since its process started, and its noisy and
// starved flows now.
type QueueDetail struct {
	AtMs         int64 `json:"at_ms"` // when it was read, Unix ms
	Enqueued     int64 `json:"enqueued"`
	Delivered    int64 `json:"delivered"`
	Acked        int64 `json:"acked"`
	Failed       int64 `json:"failed"`     // attempts: nacks and expired leases
	Expired      int64 `json:"expired"`    // leases
	Terminated   int64 `json:"terminated"` // messages that consumers ended with +TERM; they are dead letters, too
	DeadLettered int64 `json:"dead_lettered"`
	Refused      int64 `json:"refused"` // requests
	// Waits counts deliveries by how long their message waited since it was enqueued or
	// became due: at most each of 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
	// 2.5, 5, 10, 30, 60, 300, 900 and 3600 s, and longer.
	Waits []int64 `json:"waits"`

	// Ended counts deliveries that have ended, of all fairness keys and of up to as many as
	// requested of which the most ended in the last one to two minutes. MaxWaitMs is the
	// longest wait before the deliveries that ended in this time. See [Lane].
	Ended     int64        `json:"ended"`
	MaxWaitMs float64      `json:"max_wait_ms"`
	Tenants   []EndedCount `json:"tenants,omitempty"`

	NoisyFlows       int   `json:"noisy_flows"` // as in [NoisyReply]
	QuietReady       int64 `json:"quiet_ready"`
	QuietPending     int64 `json:"quiet_pending"` // the old name of quiet_ready, for one version
	QuietOldestAgeMs int64 `json:"quiet_oldest_age_ms"`
	StarvedFlows     int   `json:"starved_flows"`
}

// EndedCount is a fairness key with the number of its deliveries that have ended.
type EndedCount struct {
	Key   string `json:"key"`
	Ended int64  `json:"ended"`
}

// WaitBounds are the upper bounds, in seconds, of the counts in Waits of a [QueueDetail].
var WaitBounds = []float64{
	.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600,
}

// QueueInspectRequest asks for a [QueueInfo].
type QueueInspectRequest struct {
	Flows int `json:"flows"` // how many flows to show, 0 to 1000, default 20
}

// Bounds implements [wire.Bounded].
func (r *QueueInspectRequest) Bounds() []wire.Bound {
	return []wire.Bound{{Field: "flows", Value: int64(r.Flows), Max: MaxInspectFlows}}
}

// QueueInfo answers a [QueueInspectRequest].
type QueueInfo struct {
	QueueSummary
	Settings     wire.QueueSettings `json:"settings"`
	Sources      Sources            `json:"sources"` // who set each setting, except settings that are empty by default
	Quantum      int64              `json:"quantum"`
	Flows        int                `json:"flows"`                 // all active ones
	Wanted       int64              `json:"wanted"`                // as in [QueueWanted], within a minute
	BusyMs       int64              `json:"busy_ms"`               // as in [NoisyReply]
	NoisyFlows   []string           `json:"noisy_flows,omitempty"` // see [NoisyReply]
	StarvedFlows int                `json:"starved_flows,omitempty"`
	ConsumerList []ConsumerInfo     `json:"consumer_list"`
	Departures   []Departure        `json:"departures,omitempty"` // of the last 15 minutes, of consumers that are not back; the last one first
	TopFlows     []FlowInfo         `json:"top_flows"`            // with the most pending messages
	Hooks        []HookInfo         `json:"hooks"`
	Counters     map[string]int64   `json:"counters"` // since the start of the process

	// How many of the requested flows, and of the consumers, did not fit into the reply.
	MoreFlows     int `json:"more_flows,omitempty"`
	MoreConsumers int `json:"more_consumers,omitempty"`
}

// Departure is a consumer that has gone.
type Departure struct {
	Consumer string `json:"consumer"`
	At       string `json:"at"`               // RFC 3339
	Reason   string `json:"reason,omitempty"` // why fila ended its registration; empty: it left by itself
}

// Text returns the departure in words: "worker-3 left at 2026-01-02T12:00:00Z".
func (d *Departure) Text() string {
	if d.Reason != "" {
		return d.Consumer + " was lost at " + d.At + " (" + d.Reason + ")"
	}
	return d.Consumer + " left at " + d.At
}

// DepartureWindow is how long ago the departures of a reply are at most.
const DepartureWindow = 15 * time.Minute

// ConsumerInfo is a registered consumer, or a waiting fetch.
type ConsumerInfo struct {
	Name        string `json:"name"`
	MaxInFlight int    `json:"max_in_flight"`
	InFlight    int    `json:"in_flight"`
	Credit      int    `json:"credit"` // how many more it may get
	Fetch       bool   `json:"fetch"`
	Headers     string `json:"headers,omitempty"`    // min, or absent for all headers
	Batch       int    `json:"batch,omitempty"`      // most messages in a delivery; absent: deliveries are no batches
	ExpiresAt   string `json:"expires_at,omitempty"` // RFC 3339, absent if never
}

// FlowInfo is a flow with pending messages.
type FlowInfo struct {
	Key     string  `json:"key"`
	Weight  float64 `json:"weight"`
	Deficit float64 `json:"deficit"`
	Ready   int64   `json:"ready"`
	Pending int64   `json:"pending"` // the old name of ready, for one version
	Share   float64 `json:"share"`   // its weight among all active flows, 0 to 1

	// The flow's messages in flight, and its part of the queue's busy_ms, 0 to 1.
	InFlight  int64   `json:"in_flight"`
	BusyShare float64 `json:"busy_share"`
}

// HookInfo is the state of a hook and its circuit. Counts are since the start
// of the process.
type HookInfo struct {
	Hook                string `json:"hook"`  // on_enqueue or on_failure
	State               string `json:"state"` // closed, open or half-open
	Runs                int64  `json:"runs"`
	Failures            int64  `json:"failures"`
	Bypassed            int64  `json:"bypassed"` // not run because the circuit was open
	Warnings            int64  `json:"warnings"` // fields that took their defaults
	ConsecutiveFailures int    `json:"consecutive_failures"`
	LastError           string `json:"last_error,omitempty"`
}

// HookVersion is a script of a hook with the change that put it in force.
type HookVersion struct {
	Script string `json:"script"`           // empty: there was no hook
	Client string `json:"client,omitempty"` // who set it, as in the audit log; empty: the file, or not known
	At     string `json:"at,omitempty"`     // RFC 3339, if known
	Reason string `json:"reason,omitempty"`
}

// HookShowRequest names a hook of a queue.
type HookShowRequest struct {
	Hook string `json:"hook"` // on_enqueue or on_failure
}

// HookSetRequest replaces the script of a hook, or rolls it back.
type HookSetRequest struct {
	Hook     string  `json:"hook"`               // on_enqueue or on_failure
	Script   *string `json:"script,omitempty"`   // empty: the queue gets no hook
	Rollback bool    `json:"rollback,omitempty"` // puts the version before in force instead
	Reason   string  `json:"reason,omitempty"`   // for the audit log, at most 1024 bytes
}

// HookReply is the version of a hook in force, and the version before it.
type HookReply struct {
	Queue string `json:"queue"`
	Hook  string `json:"hook"`
	HookVersion
	Before *HookVersion `json:"before,omitempty"` // nil: none is known
	// Warnings in the reply to hook-set are as in [ConfigSetReply].
	Warnings []string `json:"warnings,omitempty"`
}

// Bounds implements [wire.Bounded].
func (r *HookShowRequest) Bounds() []wire.Bound { return []wire.Bound{boundOfHook(r.Hook, "")} }

// Bounds implements [wire.Bounded].
func (r *HookSetRequest) Bounds() []wire.Bound { return []wire.Bound{boundOfHook(r.Hook, "")} }

// Bounds implements [wire.Bounded].
func (r *HookResetRequest) Bounds() []wire.Bound { return []wire.Bound{boundOfHook(r.Hook, "both")} }

func boundOfHook(hook, none string) wire.Bound {
	return wire.Bound{Field: "hook", Text: hook, OneOf: []string{wire.HookOnEnqueue, wire.HookOnFailure}, Zero: none}
}

func (r *HookSetRequest) check() *wire.Error {
	if err := wire.CheckBounds(r); err != nil {
		return err
	}
	if (r.Script != nil) == r.Rollback {
		return wire.BadField("script", "", "exactly one of script and rollback is required")
	}
	return wire.InRange("bytes of reason", len(r.Reason), 0, MaxJobReason)
}

// HookResetRequest closes the circuits of a queue's hooks.
type HookResetRequest struct {
	Hook string `json:"hook,omitempty"` // on_enqueue or on_failure; empty: both
}

// HookResetReply answers a [HookResetRequest] with the hooks after it.
type HookResetReply struct {
	Queue string     `json:"queue"`
	Hooks []HookInfo `json:"hooks"`
}

// NoisyRequest asks for the noisy flows of a queue, and up to Limit waiting ones.
type NoisyRequest struct {
	Limit int `json:"limit"` // 0 to 1000, default 20
}

// Bounds implements [wire.Bounded].
func (r *NoisyRequest) Bounds() []wire.Bound {
	return []wire.Bound{{Field: "limit", Value: int64(r.Limit), Max: MaxNoisyLimit}}
}

// NoisyReply answers a [NoisyRequest]. A flow is noisy if, while a message of another flow
// is ready, it has more of the consumers than its fair share and a tenth: of the messages in
// flight, and at least 30 of them, or of the time that consumers worked in the last one to
// two minutes, for at least 30 messages. Its fair share is its weight among the weights of
// all flows that use consumers or could.
type NoisyReply struct {
	Queue            string        `json:"queue"`
	InFlight         int64         `json:"in_flight"`           // of all flows
	BusyMs           int64         `json:"busy_ms"`             // how long consumers worked lately, all flows
	Noisy            []NoisyFlow   `json:"noisy"`               // by busy_ms, largest first
	QuietReady       int64         `json:"quiet_ready"`         // messages of all other flows
	QuietPending     int64         `json:"quiet_pending"`       // the old name of quiet_ready, for one version
	QuietOldestAgeMs int64         `json:"quiet_oldest_age_ms"` // the longest wait
	Waiting          []WaitingFlow `json:"waiting"`             // quiet flows, longest wait first
	StarvedFlows     int           `json:"starved_flows"`       // not delivered from for starve_after_ms, though others were
	Starved          []WaitingFlow `json:"starved"`             // longest wait first
}

// NoisyFlow is a flow that uses much of the consumers' work.
type NoisyFlow struct {
	Key           string  `json:"key"`
	InFlight      int64   `json:"in_flight"`
	InFlightShare float64 `json:"in_flight_share"` // of all flows
	BusyMs        int64   `json:"busy_ms"`
	BusyShare     float64 `json:"busy_share"`
	Ended         int64   `json:"ended"`      // deliveries that busy_ms is the time of
	FairShare     float64 `json:"fair_share"` // that its weight entitles it to, 0 to 1
	Ready         int64   `json:"ready"`
	Pending       int64   `json:"pending"` // the old name of ready, for one version
}

// WaitingFlow is a quiet flow whose first message waits only for its turn or for a consumer.
type WaitingFlow struct {
	Key     string `json:"key"`
	Ready   int64  `json:"ready"`
	Pending int64  `json:"pending"` // the old name of ready, for one version
	WaitMs  int64  `json:"wait_ms"` // since its first message became ready
}

// checkOptionalQueue checks a queue name that may be missing.
func checkOptionalQueue(name string) *wire.Error {
	if name == "" {
		return nil
	}
	if err := wire.CheckQueueName(name); err != nil {
		return wire.BadQueueName(err)
	}
	return nil
}
