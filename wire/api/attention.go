package api

import (
	"time"

	"github.com/filaq/fila/wire"
)

// Severities of a [Finding], the worst first.
const (
	SeverityCritical = "critical" // messages are lost, refused or not delivered at all
	SeverityWarning  = "warning"  // some messages fail or wait too long
	SeverityInfo     = "info"     // an operator has decided it, or may have to
)

// Severities are all severities, the worst first.
var Severities = []string{SeverityCritical, SeverityWarning, SeverityInfo}

// MaxFindingQueues is how many queues a [Finding] names.
const MaxFindingQueues = 10

// DefaultFindings is how many findings a reply has unless the request says otherwise.
const DefaultFindings = 50

// AttentionRequest asks what is wrong now.
type AttentionRequest struct {
	Queue string `json:"queue,omitempty"` // only findings about this queue, and about gates that block its messages
	Limit int    `json:"limit"`           // 1 to 1000, default 50
}

func (r *AttentionRequest) check() *wire.Error {
	if err := checkOptionalQueue(r.Queue); err != nil {
		return err
	}
	return wire.CheckBounds(r)
}

// Bounds implements [wire.Bounded].
func (r *AttentionRequest) Bounds() []wire.Bound { return []wire.Bound{boundOfLimit(r.Limit)} }

// Attention answers an [AttentionRequest]: what is wrong now, the worst first.
type Attention struct {
	Severity  string    `json:"severity"` // of the worst finding; empty: there is none
	Total     int       `json:"total"`
	Findings  []Finding `json:"findings"`
	Truncated int       `json:"truncated,omitempty"` // findings that did not fit into the reply
	// Unanswered are the nodes of a cluster that did not answer. The findings of their
	// shards are missing.
	Unanswered []string `json:"unanswered_nodes,omitempty"`
}

// Finding is a condition that holds for an object now.
type Finding struct {
	Condition string `json:"condition"` // such as no-consumers, see docs/attention.md
	Severity  string `json:"severity"`
	Since     string `json:"since"` // RFC 3339: when the answering fila found it, or when it began if that is known

	// The object. Fields that do not apply are left out.
	Queue    string `json:"queue,omitempty"`
	Key      string `json:"key,omitempty"`      // fairness key
	Gate     string `json:"gate,omitempty"`     // such as throttle:stripe
	Hook     string `json:"hook,omitempty"`     // on_enqueue or on_failure
	Schedule string `json:"schedule,omitempty"` // of the queue
	Shard    *int   `json:"shard,omitempty"`
	Node     string `json:"node,omitempty"` // of a cluster, or a NATS server

	// Whom it hurts: messages and tenants that wait, failed or are lost; 0: not known.
	Messages int64 `json:"messages,omitempty"`
	Tenants  int   `json:"tenants,omitempty"`
	// Queues are the queues with the most messages that the gate blocks, at most
	// ten. They are left out if the request names a queue; then Messages and
	// Tenants count only this queue.
	Queues []WaitingQueue `json:"queues,omitempty"`

	// Change is the change of limits that the action undoes.
	Change *LimitsChange `json:"change,omitempty"`
	// Before are the changes of the two minutes before Since, the newest first, at most three. Only
	// conditions have it that a change may have caused, see docs/attention.md.
	Before []Mark `json:"before,omitempty"`

	Title  string        `json:"title"` // what is wrong, in a few words
	Whom   string        `json:"whom"`  // whom it hurts, a sentence
	Why    string        `json:"why"`   // a sentence
	Action FindingAction `json:"action"`
}

// FindingAction is the one action that helps most.
type FindingAction struct {
	Text    string `json:"text"`              // what to do, a sentence
	Command string `json:"command,omitempty"` // of the command line
	Page    string `json:"page,omitempty"`    // path and query of the page where to do it, after the base path
}

// DrainTime returns how long a backlog, which had before messages some time ago and has now, needs
// until it is empty. It reports false if it does not shrink, or needs a day or more.
func DrainTime(before, now int64, since time.Duration) (rest time.Duration, ok bool) {
	if now >= before || since <= 0 {
		return 0, false
	}
	ns := float64(since) * float64(now) / float64(before-now) // may be longer than a time.Duration
	if ns >= float64(maxDrain) {
		return 0, false
	}
	return time.Duration(ns), true
}

// maxDrain is the longest time that [DrainTime] foretells.
const maxDrain = 24 * time.Hour

// Shorten implements [Long].
func (a *Attention) Shorten(room int) {
	all := len(a.Findings)
	a.Findings, _ = shorten(a.Findings, room-envelope)
	a.Truncated += all - len(a.Findings)
}
