package api

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/filaq/fila/wire"
)

// The texts below are what explanations, pages and commands call the same thing.

// SetByText returns an origin of limits in words: "set by an operator for tenant:*".
func SetByText(source string) string {
	if rest, ok := strings.CutPrefix(source, "prefix "); ok {
		if i := strings.LastIndex(rest, ", "); i >= 0 {
			return SetByText(rest[i+2:]) + " for " + rest[:i]
		}
	}
	if until, ok := strings.CutPrefix(source, SetByOverride); ok {
		return "overridden by an operator" + until
	}
	switch source {
	case SetByFile:
		return "set by the configuration file"
	case SetByOperator:
		return "set by an operator"
	case SetByDefault:
		return "the default"
	case SetByNobody:
		return "not set"
	case SetByHook:
		return "set by on_enqueue"
	case SetByHeader:
		return "set by a header"
	case SetByMessage:
		return "set by its messages"
	}
	return "set by " + source
}

// Text returns the source of a value in words, with client and owner if they are known: "set by
// maria@ops for billing".
func (s Source) Text() string {
	author := AuthorText(clientText(s.Client), s.Owner)
	switch {
	case author == "":
		return SetByText(s.By)
	case s.By == SetByOverride:
		return "overridden by " + author
	}
	return "set by " + author
}

// Newest returns the source of the newest change; the zero value: no time is known.
func (s Sources) Newest() (newest Source) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if s[name].At > newest.At {
			newest = s[name]
		}
	}
	return newest
}

// AuthorText names a client and the owner for whom it acts: "maria@ops for billing"; empty: neither is known.
func AuthorText(client, owner string) string {
	switch {
	case owner == "" || owner == client:
		return client
	case client == "":
		return owner
	}
	return client + " for " + owner
}

// clientText returns a client in words: the pages name themselves "web", and with a login "web maria".
func clientText(client string) string {
	switch name, pages := strings.CutPrefix(client, "web"); {
	case client == "web":
		return "the pages"
	case pages && strings.HasPrefix(name, " "):
		return name[1:] + " on the pages"
	}
	return client
}

// ActorText returns who made a change in words, from what made it and its client as the audit log has
// them: "maria@ops".
func ActorText(by, client string) string {
	if client != "" {
		return clientText(client)
	}
	switch by {
	case SetByOperator:
		return "an operator"
	case SetByFile:
		return "the configuration file"
	case CauseMaxFailures:
		return "a safety limit"
	case "override-ended", "pause-ended", "time":
		return "the end of its time"
	case "fleet":
		return "another fila"
	}
	return "an unnamed client"
}

// Text returns the change in words: "maria@ops lowered the limits of tenant:* from 20/s to 2/s".
func (c *LimitsChange) Text() string {
	actor, before, after := ActorText(c.By, c.Client), c.Old.Text(), c.New.Text()
	if before == noLimits {
		return actor + " set the limits of " + c.Key + ", which had none, to " + after
	}
	verb := "changed"
	if c.Lowers() {
		verb = "lowered"
	}
	return actor + " " + verb + " the limits of " + c.Key + " from " + before + " to " + after
}

// BeforeText returns a change in words, with who made it and how long before a time that was: "release
// from 1 to 2 by deploy-bot, 3 s before".
func (m *Mark) BeforeText(end string) string {
	text := m.CountedText()
	if m.Object != "" && (m.Kind == MarkLimits || m.Kind == MarkCircuit || m.Kind == MarkPause || m.Kind == MarkResume) {
		text = m.Object + " " + text
	}
	return text + " by " + ActorText(m.By, m.Client) + ", " + EarlierText(m.At, end)
}

// EarlierText returns how long a time was before another one, both RFC 3339.
func EarlierText(text, than string) string {
	at, err := time.Parse(time.RFC3339Nano, text)
	end, wrong := time.Parse(time.RFC3339Nano, than)
	if d := end.Sub(at); err == nil && wrong == nil && d >= time.Second {
		return wire.Span(d.Truncate(time.Second)) + " before"
	}
	return "just before"
}

// CountedText returns what happened, and how often: "opened: failures, 12 times".
func (m *Mark) CountedText() string {
	if m.Count > 1 {
		return m.Text + ", " + wire.Grouped(m.Count) + " times"
	}
	return m.Text
}

// StateText returns the state of a circuit and its cause in words: "open after 7 failures in a
// row".
func (c *CircuitInfo) StateText() string {
	failures := wire.Plural(int64(c.ConsecutiveFailures), "failure") + " in a row"
	switch {
	case c.State == "closed" && c.ConsecutiveFailures > 0:
		return c.State + ", " + failures
	case c.State == "closed":
		return c.State
	case c.Cause == CauseRetryAfter:
		return c.State + ", since the destination asked for a pause (429 or Retry-After)"
	case c.Cause == CauseByHand:
		return c.State + " by hand"
	case c.Cause == CauseMaxFailures:
		return c.State + " after more than max_failures"
	case c.ConsecutiveFailures > 0:
		return c.State + " after " + failures
	}
	return c.State
}

// WaitsForText returns in words what a ready message waits for, from PeekedMessage.WaitsFor.
func WaitsForText(waitsFor string) string {
	switch waitsFor {
	case WaitsForConsumer:
		return "a consumer"
	case WaitsForCredit:
		return "a consumer with credit"
	case WaitsForTurn:
		return "the turn of its key"
	case WaitsForVerdict:
		return "the verdict about its failure"
	}
	return waitsFor
}

// SkippedText returns in words why a job left messages unchanged, from JobInfo.Left.
func SkippedText(reason string) string {
	switch reason {
	case LeftGone:
		return "finished meanwhile"
	case LeftInFlight:
		return "in flight"
	case LeftMoving:
		return "moving to another queue"
	case LeftNotDelayed:
		return "not delayed"
	case LeftKeyFull:
		return "fairness key at max_pending_per_key"
	case LeftBadKey:
		return "invalid key, weight or priority"
	case LeftRefused:
		return "refused by the target queue"
	}
	return strings.ReplaceAll(reason, "_", " ")
}

// EndText returns the end of an attempt in words: "nacked after 120ms". span formats
// milliseconds.
func (a *AttemptInfo) EndText(span func(ms int64) string) string {
	text := strings.ReplaceAll(a.Outcome, "_", " ")
	switch a.Outcome {
	case wire.AttemptNoResponders:
		if text = "no subscriber"; a.Times > 1 {
			text += ", " + strconv.FormatUint(uint64(a.Times), 10) + " times"
		}
		return text
	case wire.AttemptMoved:
		if a.From != "" && a.To != "" {
			text += " from " + a.From + " to " + a.To
		}
		return text
	case wire.AttemptNack:
		text = "nacked"
	case wire.AttemptTerm:
		text = "terminated"
	case wire.AttemptExpired:
		text = "lease expired"
	}
	if a.Attempt != 0 && a.At != "" {
		text += " after " + span(a.TookMs)
	}
	return text
}

// ThenText returns in words what happened to a message after an attempt, and by whose decision:
// "retried after 5s (rule broke)". It is empty if nothing was decided.
func (a *AttemptInfo) ThenText(span func(ms int64) string) string {
	if a.DecidedBy == "" {
		return ""
	}
	text := "retried at once"
	switch {
	case a.Reason != "":
		text = "dead-lettered: " + a.Reason
	case a.DelayMs > 0:
		text = "retried after " + span(a.DelayMs)
	}
	by := a.DecidedBy
	switch {
	case a.Rule != "" && (by == wire.DecidedByRule || by == a.Reason):
		by = "rule " + a.Rule
	case a.Rule != "":
		by += ", rule " + a.Rule
	case by == a.Reason:
		return text
	}
	return text + " (" + by + ")"
}
