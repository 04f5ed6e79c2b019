package api

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/filaq/fila/wire"
)

// MaxGateValue is the largest burst, concurrency and window limit.
const MaxGateValue = 1_000_000_000

// KeyInBody is the tail of an admin subject whose key is in the body.
const KeyInBody = "_"

// KeyTail returns the tail of the subject, and the key field of the body, of a request about
// a key. A key that is not legal in a subject is in the body, and the tail is [KeyInBody].
func KeyTail(key string) (tail, bodyKey string) {
	if tail = wire.EventTail(key); tail == KeyInBody {
		return KeyInBody, key
	}
	return tail, ""
}

// resolveKey sets the key field of a body, which is in the form of [ShowKey], to the key that
// subject and body name. It is the inverse of [KeyTail].
func resolveKey(tail string, key *string) *wire.Error {
	switch {
	case tail == KeyInBody || tail == "":
		if *key == "" {
			return wire.BadField("key", "", "name it at the end of the subject, or as key in the body if the subject ends in _")
		}
	case *key != "" && *key != tail:
		return wire.BadField("key", wire.Quote(*key), "the subject has "+wire.Quote(tail))
	default:
		*key = tail
	}
	return wire.NameKey("key", key)
}

// ThrottleLimits are the limits of a throttle key. A field that is nil is not set.
type ThrottleLimits struct {
	Rate        *wire.Rate `json:"rate,omitempty"`        // per second; token bucket
	Burst       *float64   `json:"burst,omitempty"`       // size of the bucket in cost, from 1
	Concurrency *int64     `json:"concurrency,omitempty"` // in flight at once, from 1
	Limit       *int64     `json:"limit,omitempty"`       // messages in any window, from 1
	WindowMs    *int64     `json:"window_ms,omitempty"`   // the window
	// Adapt makes concurrency, or the rate, the ceiling of a level that is learned.
	Adapt *ThrottleAdapt `json:"adapt,omitempty"`
	Level *float64       `json:"level,omitempty"` // fixes that level, from 0.001; needs adapt

	Budget *float64   `json:"budget,omitempty"`  // cost in a calendar period, from 0.001
	Period *string    `json:"period,omitempty"`  // hour, day, week or month
	Zone   *string    `json:"zone,omitempty"`    // time zone of the period, by default UTC
	WarnAt *[]float64 `json:"warn_at,omitempty"` // parts of the budget at whose use to warn, up to four
	// OnEmpty is what becomes of messages that cost more than is left of the budget: hold (the
	// default), dead_letter or refuse.
	OnEmpty *string `json:"on_empty,omitempty"`
}

// noLimits is the text of no limits.
const noLimits = "none"

// Text returns the limits in words: "10/s, burst 20, 3 at once, 5 in any 1m", or "none".
// Pages, commands, explanations and the log write limits so. It names limits that have no
// effect without another one.
func (l ThrottleLimits) Text() string {
	var parts []string
	if l.Rate != nil {
		parts = append(parts, l.Rate.Text())
	}
	if l.Burst != nil {
		burst := wire.BurstText(*l.Burst)
		if l.Rate == nil {
			burst += " (no effect without a rate)"
		}
		parts = append(parts, burst)
	}
	if l.Concurrency != nil {
		parts = append(parts, fmt.Sprintf("%d at once", *l.Concurrency))
	}
	switch {
	case l.Limit != nil && l.WindowMs != nil:
		parts = append(parts, fmt.Sprintf("%d in any %s", *l.Limit, wire.FormatMs(*l.WindowMs)))
	case l.Limit != nil:
		parts = append(parts, fmt.Sprintf("limit %d (no effect without a window)", *l.Limit))
	case l.WindowMs != nil:
		parts = append(parts, "window "+wire.FormatMs(*l.WindowMs)+" (no effect without a limit)")
	}
	if l.Adapt != nil {
		text := "learned"
		if l.Adapt.Min != nil {
			text += " from " + strconv.FormatFloat(*l.Adapt.Min, 'f', -1, 64) + " on"
		}
		if l.Concurrency == nil && l.Rate == nil {
			text += " (no effect without a rate or concurrency)"
		}
		parts = append(parts, text)
	}
	if l.Level != nil {
		text := "level " + strconv.FormatFloat(*l.Level, 'f', -1, 64)
		if l.Adapt == nil {
			text += " (no effect without adapt)"
		}
		parts = append(parts, text)
	}
	if l.Budget != nil {
		text := CostText(*l.Budget)
		if l.Period != nil {
			text += " " + aPeriod(*l.Period)
		}
		if l.Zone != nil {
			text += " (" + *l.Zone + ")"
		}
		if l.OnEmpty != nil {
			text += ", then " + *l.OnEmpty
		}
		parts = append(parts, "budget "+text)
	}
	if len(parts) == 0 {
		return noLimits
	}
	return strings.Join(parts, ", ")
}

// ThrottleSetRequest sets limits of a throttle key or, if it ends in '*', of every key with
// that prefix. Limits that are nil stay as they are.
type ThrottleSetRequest struct {
	// Key is the throttle key if the tail of the subject is "_".
	Key string `json:"key,omitempty"`
	ThrottleLimits
	// Unset names limits to remove: rate, burst, concurrency, limit, window_ms, adapt, level, budget
	// (with period, zone, warn_at and on_empty), zone, warn_at, on_empty. Without for_ms, level is also removed from an
	// override.
	Unset []string `json:"unset,omitempty"`
	// ForMs makes the change an override that ends after this time; 0 is a lasting change.
	ForMs int64 `json:"for_ms,omitempty"`
	// If, unless nil, must match the limits that are set, in the fields that are not nil;
	// otherwise nothing changes (409). An empty rate or 0 matches a limit that is not set.
	If *ThrottleLimits `json:"if,omitempty"`
}

// GateKeyRequest names a throttle key or a circuit.
type GateKeyRequest struct {
	Key string `json:"key,omitempty"` // if the tail of the subject is "_"
}

// Origins of limits and weights, in ThrottleInfo.Source, CircuitInfo.Source,
// GateState.SetBy and ExplainKey.WeightBy.
const (
	SetByFile     = "file"     // a table of the configuration file
	SetByOperator = "operator" // at run time: throttle-set, config-set
	SetByOverride = "override" // an operator, for a limited time
	SetByDefault  = "default"  // not set: the default is in force
	SetByNobody   = "none"     // not set: there is no limit
	SetByHook     = "hook"     // on_enqueue of the queue
	SetByHeader   = "header"   // the weight_header of the queue
	SetByMessage  = "message"  // the messages carry the weight, from a job or from earlier settings
)

// Source says who set a value.
type Source struct {
	By     string `json:"by"`               // file, operator, override, default or "fila <name>"
	Client string `json:"client,omitempty"` // of the change, as in the audit log, if that still has it
	Owner  string `json:"owner,omitempty"`  // in whose name the client made it
	Reason string `json:"reason,omitempty"` // of the change
	At     string `json:"at,omitempty"`     // RFC 3339: when it was changed, if known
}

// Sources are the sources of the values of an object, by their names in requests.
type Sources map[string]Source

// SetForKey reports whether a ThrottleInfo.Source says that the limits are set for the key
// itself at this fila, rather than for a prefix or at another fila.
func SetForKey(source string) bool {
	return source == SetByFile || source == SetByOperator || source == SetByOverride
}

// IsThrottlePrefix reports whether a throttle key is a prefix of keys, each of which has the limits for
// itself.
func IsThrottlePrefix(key string) bool { return strings.HasSuffix(key, "*") }

// ThrottleInfo is a throttle key with its limits and the state of its gate.
type ThrottleInfo struct {
	Key string `json:"key"`
	ThrottleLimits
	// Source is the origin of the limits: file, operator, override,
	// "prefix <prefix>*, " followed by one of these, "fila <name>" of another fila, or none.
	Source string `json:"source"`
	// Sources says in throttle-show who set each limit; absent if another fila did.
	Sources       Sources `json:"sources,omitempty"`
	OverrideUntil string  `json:"override_until,omitempty"` // RFC 3339
	Owner         string  `json:"owner,omitempty"`          // of the key's own limits
	// Warnings in the replies to throttle-set and throttle-clear are as in [ConfigSetReply].
	Warnings    []string `json:"warnings,omitempty"`
	PausedUntil string   `json:"paused_until,omitempty"` // RFC 3339, or "resumed" if only a resume ends it

	Admits   bool    `json:"admits"`              // it admits messages
	State    string  `json:"state"`               // what blocks: rate, window, concurrency, reserved, paused, budget; open while it admits
	AdmitsAt string  `json:"admits_at,omitempty"` // RFC 3339: when it may admit messages again, if a time is known
	OpensAt  string  `json:"opens_at,omitempty"`  // the old name of AdmitsAt, for one version
	Tokens   float64 `json:"tokens"`              // in the bucket; negative: debt
	InWindow int64   `json:"in_window"`
	InFlight int64   `json:"in_flight"`
	// Waiting is the number of queues with messages that it blocks, and WaitingMessages the
	// number of these messages; throttle-show counts them. In other replies Waiting is the
	// number of queues on its wait list. WaitingMessages is in throttle-list as of the last
	// sample for attention, of queues of this fila, and 0 in other replies.
	Waiting         int   `json:"waiting"`
	WaitingMessages int64 `json:"waiting_messages,omitempty"`
	// Admitted and Blocked are how often this fila has admitted a message or call, and how often
	// the first of the messages of a flow with the same gates began to wait or a call was refused,
	// since fila started. The gate of a key without limits of its own is gone when nothing needs it;
	// the counts of the last thousand such keys are kept, others begin anew.
	Admitted int64 `json:"admitted"`
	Blocked  int64 `json:"blocked"`
	// Unused says that limits are set for the key or prefix, but no message or call has used
	// it since fila started. Nodes of a cluster do not set it.
	Unused bool `json:"unused,omitempty"`
	// Change is, in the reply to throttle-show, the latest change of the limits that are in force,
	// if it was at run time, the audit log has it, and no override is in force.
	Change *LimitsChange `json:"change,omitempty"`
	// WaitingKeys are, in the reply to throttle-show about a prefix, up to 50 keys with
	// its limits whose messages wait as of the last sample for attention, those with the most first.
	WaitingKeys []WaitingKey `json:"waiting_keys,omitempty"`
	// WaitingQueues are, in the reply to throttle-show, up to 50 blocked
	// queues, those with the most blocked messages first.
	WaitingQueues []WaitingQueue `json:"waiting_queues,omitempty"`

	// Spending is what a key with a budget has used in the present period.
	Spending *BudgetInfo `json:"spending,omitempty"`

	Shared *ThrottleShared `json:"shared,omitempty"` // nil: the limits are not shared
	// Learned is the level of a limit that learns; nil: the limits are fixed.
	Learned *ThrottleLearned `json:"learned,omitempty"`
}

// LimitsChange is the latest change of the limits that are in force for a throttle key.
type LimitsChange struct {
	Key    string `json:"key"` // whose limits were changed: the throttle key, or a prefix that ends in '*'
	At     string `json:"at"`  // RFC 3339
	By     string `json:"by"`  // the verb, or file, as in the audit log
	Client string `json:"client,omitempty"`
	Reason string `json:"reason,omitempty"` // of the change, if one was given
	// Old and New have the limits that were changed.
	Old ThrottleLimits `json:"old"`
	New ThrottleLimits `json:"new"`
}

// Lowers reports whether the change lets fewer messages pass.
func (c *LimitsChange) Lowers() bool {
	lower := func(old, now *int64) bool { return now != nil && (old == nil || *now < *old) }
	return c.New.Rate != nil && (c.Old.Rate == nil || c.New.Rate.PerSecond() < c.Old.Rate.PerSecond()) ||
		lower(c.Old.Concurrency, c.New.Concurrency) || lower(c.Old.Limit, c.New.Limit) ||
		c.New.WindowMs != nil && !lower(c.Old.WindowMs, c.New.WindowMs) ||
		c.New.Level != nil && (c.Old.Level == nil || *c.New.Level < *c.Old.Level)
}

// Back returns the request that undoes the change, unless the limits were changed since.
func (c *LimitsChange) Back() ThrottleSetRequest {
	expected := c.New
	req := ThrottleSetRequest{ThrottleLimits: c.Old, If: &expected}
	old, now := c.Old.Names(), c.New.Names()
	for _, name := range limitNames {
		switch {
		case !slices.Contains(old, name) && slices.Contains(now, name):
			req.Unset = append(req.Unset, name)
		case slices.Contains(old, name) && !slices.Contains(now, name):
			expected.putNone(name)
		}
	}
	return req
}

// putNone says in a condition that a limit is not set.
func (l *ThrottleLimits) putNone(name string) {
	switch name {
	case "rate":
		l.Rate = new(wire.Rate)
	case "adapt":
		l.Adapt = new(ThrottleAdapt)
	case "period", "zone", "warn_at", "on_empty":
		l.Put(name, new(""))
	default:
		l.Put(name, new("0"))
	}
}

// Expects reports whether the request has a condition, which an If without a limit is not.
func (r *ThrottleSetRequest) Expects() bool { return r.If != nil && len(r.If.Names()) > 0 }

// MaxWaitingQueues is how many blocked queues a reply about a gate names.
const MaxWaitingQueues = 50

// WaitingQueue is a queue with messages that a gate blocks.
type WaitingQueue struct {
	Queue    string `json:"queue"`
	Messages int64  `json:"messages"`
	Flows    int    `json:"flows"`
}

// WaitingKey is a throttle key with messages that it blocks.
type WaitingKey struct {
	Key      string `json:"key"`
	Messages int64  `json:"messages"`
}

// ThrottleShared is how filas share the limits of a throttle key. Tokens and messages in its
// ThrottleInfo are of this fila's lease.
type ThrottleShared struct {
	Degraded bool             `json:"degraded,omitempty"` // the bucket cannot be reached: this fila uses what it has leased
	Alone    bool             `json:"alone,omitempty"`    // no other fila uses the key: this one uses its own limits, and the other fields are not set
	Users    map[string]int64 `json:"users,omitempty"`    // permits for messages in flight, by fila
	Tokens   float64          `json:"tokens"`             // in the shared bucket, not leased
	InWindow int64            `json:"in_window"`          // slots used or leased
	// Own is set if newer limits of another fila are in force: the limits set here.
	Own       *ThrottleLimits `json:"own,omitempty"`
	By        string          `json:"by,omitempty"`         // the other fila
	ChangedAt string          `json:"changed_at,omitempty"` // RFC 3339, if known
}

// ThrottleList answers throttle-list.
type ThrottleList struct {
	Total     int            `json:"total"`
	Throttles []ThrottleInfo `json:"throttles"`
	Next      string         `json:"next,omitempty"` // after of the next request, if there is more
}

// limitNames are the fields of [ThrottleLimits], in their order.
var limitNames = []string{"rate", "burst", "concurrency", "limit", "window_ms", "adapt", "level", "budget", "period", "zone", "warn_at", "on_empty"}

func (r *GateKeyRequest) key() *string     { return &r.Key }
func (r *ThrottleSetRequest) key() *string { return &r.Key }

// Bounds implements [wire.Bounded].
func (r *ThrottleSetRequest) Bounds() []wire.Bound {
	return []wire.Bound{boundOfTime(r.ForMs), {Field: "unset", Text: limitNames[0], OneOf: limitNames}}
}

func boundOfTime(forMs int64) wire.Bound {
	return wire.Bound{Field: "for_ms", Value: forMs, Max: wire.MaxSettingMs}
}

// check does not know the limits in force, so it accepts a burst without a rate.
func (r *ThrottleSetRequest) check() *wire.Error {
	if err := r.ThrottleLimits.check(false); err != nil {
		return err
	}
	set := r.Names()
	if slices.Contains(r.Unset, "budget") { // the others have no effect without it
		for _, name := range limitNames[8:] {
			if !slices.Contains(r.Unset, name) {
				r.Unset = append(r.Unset, name)
			}
		}
	}
	for i, name := range r.Unset {
		switch {
		case !slices.Contains(limitNames, name):
			return wire.BadThrottle("unset names " + wire.Quote(name) + ": allowed are " + strings.Join(limitNames, ", "))
		case slices.Contains(set, name):
			return wire.BadThrottle(name + " is given and in unset, too: only one is allowed")
		case slices.Contains(r.Unset[:i], name):
			return wire.BadThrottle("unset names " + name + " twice")
		}
	}
	if len(set)+len(r.Unset) == 0 {
		return wire.BadThrottle("nothing to set: give at least one of " + strings.Join(limitNames, ", ") + " and unset")
	}
	if r.If != nil {
		if err := r.If.check(true); err != nil {
			return err
		}
	}
	return wire.CheckBounds(r)
}

// Put sets the limit of a name to its text in the runtime configuration; nil: it is not set. It
// reports whether there is a limit of this name, and leaves one whose text it cannot read.
func (l *ThrottleLimits) Put(name string, text *string) (known bool) {
	if !slices.Contains(limitNames, name) {
		return false
	}
	if text == nil {
		return true
	}
	whole := map[string]**int64{"concurrency": &l.Concurrency, "limit": &l.Limit, "window_ms": &l.WindowMs}
	switch name {
	case "rate":
		l.Rate = new(wire.Rate(*text))
	case "burst", "level":
		if v, err := strconv.ParseFloat(*text, 64); err == nil {
			*map[string]**float64{"burst": &l.Burst, "level": &l.Level}[name] = &v
		}
	case "adapt":
		if v, err := ReadAdapt(*text); err == nil {
			l.Adapt = v
		}
	case "budget":
		if v, err := strconv.ParseFloat(*text, 64); err == nil {
			l.Budget = &v
		}
	case "period":
		l.Period = text
	case "zone":
		l.Zone = text
	case "on_empty":
		l.OnEmpty = text
	case "warn_at":
		if v, err := ParseParts(*text); err == nil {
			l.WarnAt = &v
		}
	default:
		if v, err := strconv.ParseInt(*text, 10, 64); err == nil {
			*whole[name] = &v
		}
	}
	return true
}

// Names returns the names of the limits that are not nil, in the order of the
// fields.
func (l ThrottleLimits) Names() []string {
	var names []string
	for i, given := range []bool{l.Rate != nil, l.Burst != nil, l.Concurrency != nil, l.Limit != nil, l.WindowMs != nil, l.Adapt != nil, l.Level != nil, l.Budget != nil, l.Period != nil, l.Zone != nil, l.WarnAt != nil, l.OnEmpty != nil} {
		if given {
			names = append(names, limitNames[i])
		}
	}
	return names
}

// Validate returns nil or the refusal of the first limit that is out of its range. A limit
// that needs another one passes: the key may have it.
func (l ThrottleLimits) Validate() *wire.Error { return l.check(false) }

// check allows an empty rate and zeros only if none is true: in ThrottleSetRequest.If they
// say that the limit is not set.
func (l ThrottleLimits) check(none bool) *wire.Error {
	if l.Rate != nil && !(none && *l.Rate == "") {
		if err := l.Rate.Check(); err != nil {
			return wire.BadThrottle("rate is " + wire.Quote(string(*l.Rate)) + ": " + err.Error())
		}
	}
	if b := l.Burst; b != nil && !(none && *b == 0) && !(*b >= 1 && *b <= MaxGateValue) {
		return wire.BadThrottle("burst is " + strconv.FormatFloat(*b, 'g', -1, 64) + ": allowed are 1 to " + strconv.Itoa(MaxGateValue))
	}
	if err := l.checkAdapt(none); err != nil {
		return err
	}
	if b := l.Budget; b != nil && !(none && *b == 0) && !(*b >= 0.001 && *b <= MaxBudget) {
		return wire.BadThrottle("budget is " + strconv.FormatFloat(*b, 'g', -1, 64) + ": allowed are 0.001 to " + strconv.Itoa(MaxBudget))
	}
	if p := l.Period; p != nil && !(none && *p == "") && !slices.Contains(BudgetPeriods, *p) {
		return wire.BadThrottle("period is " + wire.Quote(*p) + ": allowed are " + strings.Join(BudgetPeriods, ", "))
	}
	if e := l.OnEmpty; e != nil && !(none && *e == "") && !slices.Contains(OnEmpty, *e) {
		return wire.BadThrottle("on_empty is " + wire.Quote(*e) + ": allowed are " + strings.Join(OnEmpty, ", "))
	}
	if w := l.WarnAt; w != nil {
		if err := checkParts(*w); err != nil {
			return wire.BadThrottle("warn_at is " + wire.Quote(PartsText(*w)) + ": " + err.Error())
		}
	}
	bounded := wire.Bounded(l)
	if none {
		bounded = throttleCondition(l)
	}
	if out := wire.OutOfBounds(bounded); out != nil {
		return wire.BadThrottle(out.Error())
	}
	return nil
}

// Bounds implements [wire.Bounded].
func (l ThrottleLimits) Bounds() []wire.Bound {
	bound := func(name string, value *int64, most int64) wire.Bound {
		b := wire.Bound{Field: name, Value: 1, Min: 1, Max: most}
		if value != nil {
			b.Value = *value
		}
		return b
	}
	return []wire.Bound{
		bound(limitNames[1], nil, MaxGateValue),
		bound(limitNames[2], l.Concurrency, MaxGateValue),
		bound(limitNames[3], l.Limit, MaxGateValue),
		bound(limitNames[4], l.WindowMs, wire.MaxSettingMs),
	}
}

// throttleCondition are limits in which 0 is a limit that is not set.
type throttleCondition ThrottleLimits

func (l throttleCondition) Bounds() []wire.Bound {
	bounds := ThrottleLimits(l).Bounds()
	for i := range bounds {
		bounds[i].Zero = "not set"
	}
	return bounds
}
