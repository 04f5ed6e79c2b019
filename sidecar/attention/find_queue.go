package attention

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Thresholds of conditions about queues. The alerts have the same.
const (
	risingDead = 10
	// RisingWithin is the time in which the condition dead-letters-rise counts dead letters.
	RisingWithin  = 15 * time.Minute
	quietWithin   = time.Minute
	hookWithin    = 2 * time.Minute
	noisyWait     = time.Second
	oldAge        = time.Hour
	agingAge      = 5 * time.Minute
	expiredLeases = 10
	expiredPart   = 20 // one in expiredPart deliveries
	expiredWithin = 5 * time.Minute
	refusedMany   = 100
	refusedWithin = 10 * time.Minute
	lateAfter     = time.Minute
	// HeldAfter is how long a throttle blocks the first message of a queue before that is a finding.
	HeldAfter = time.Minute
)

// QueuePage is the path of a page of a queue.
func QueuePage(queue, tab string) string { return "/queues/" + escape(queue) + tab }

// ThrottlePage is the path and query of the page of a throttle key.
func ThrottlePage(key string) string { return "/gates/throttle?key=" + escape(key) }

// escape escapes a name for the path and the query of an address. Package net/url is not for
// pure packages.
func escape(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.~", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// Command joins words to a command of the command line, quoted for a shell.
func Command(words ...string) string {
	for i, w := range words {
		if w == "" || strings.ContainsFunc(w, needsQuote) || i > 0 && strings.HasPrefix(w, "-") && w != "--dry-run" {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return "fila " + strings.Join(words, " ")
}

func needsQuote(r rune) bool {
	plain := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:/@%+,=", r)
	return !plain
}

func noConsumers(v *view, add func(api.Finding)) {
	for i := range v.Queues {
		if q := &v.Queues[i]; q.Consumers == 0 && q.ready() > 0 {
			why := "No consumer is registered, and no fetch waits."
			if named := departures(q.Departures); named != "" {
				why += " The last to go: " + named + "."
			} else if most := v.before[i].mostConsumers(); most > 0 {
				why += fmt.Sprintf(" It had up to %s in the last 15 minutes.", wire.Plural(int64(most), "consumer"))
			}
			add(api.Finding{
				Queue: q.Name, Messages: q.ready(), Tenants: q.Tenants, Why: why,
				Action: api.FindingAction{Text: "fila cannot start consumers: start them where they run. Their logs say why they stopped. Meanwhile the messages stay in the queue.", Command: Command("queue", "inspect", q.Name), Page: QueuePage(q.Name, "")},
			})
		}
	}
}

// namedDepartures is how many departures a finding names.
const namedDepartures = 4

// departures names the last consumers that have gone.
func departures(list []api.Departure) string {
	var texts []string
	for i := range list[:min(len(list), namedDepartures)] {
		texts = append(texts, list[i].Text())
	}
	return strings.Join(texts, ", ")
}

func failingHooks(v *view, add func(api.Finding)) {
	for i := range v.Queues {
		q := &v.Queues[i]
		recent := rise(v.before[i].before(v.now[i], hookWithin).failed, v.now[i].failed) > 0
		for _, h := range q.Hooks {
			if h.State == "closed" && h.ConsecutiveFailures == 0 && (!recent || h.Failures+h.Bypassed == 0) {
				continue
			}
			f := api.Finding{Queue: q.Name, Hook: h.Hook}
			what := "every message takes the default fairness key, weight and gates, so tenants are not separated, and one of them can keep all others waiting"
			if h.Hook == wire.HookOnFailure {
				what = "the retry policy of the queue decides about failed messages instead"
			}
			f.Why = fmt.Sprintf("%s fails: %s.", h.Hook, what)
			if h.State != "closed" {
				f.Why = fmt.Sprintf("The circuit of %s is %s after failures: %s.", h.Hook, h.State, what)
			}
			if set := q.HookVersions[h.Hook]; set.At != "" {
				f.Why += fmt.Sprintf(" %s changed the script at %s.", capital(api.ActorText("", set.Client)), set.At)
			}
			if h.LastError != "" {
				f.Why += " The last error: " + strings.TrimPrefix(firstLine(h.LastError), "error: ")
			}
			f.Action = api.FindingAction{Text: "Fix the script or roll it back. A new script closes the circuit.", Command: Command("hook", "show", q.Name), Page: QueuePage(q.Name, "/hooks")}
			add(f)
		}
	}
}

// firstLine returns a text without the source lines that an interpreter adds below.
func firstLine(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	return text
}

// riseOfDead is how many messages of a queue became dead letters lately.
func riseOfDead(v *view, i int) int64 {
	return rise(v.before[i].before(v.now[i], RisingWithin).dead, v.now[i].dead)
}

func risingDeadLetters(v *view, add func(api.Finding)) {
	for i := range v.Queues {
		q := &v.Queues[i]
		if n := riseOfDead(v, i); n > risingDead && q.Dead > 0 {
			why := "Consumers ended messages with +TERM, or messages failed as often as the queue allows."
			if m := q.MostDead; m != nil {
				why = fmt.Sprintf("The most frequent error, of %s: %s.", wire.Plural(m.Messages, "message"), errorText(m.ErrorCode, m.Error))
			}
			if v.before[i].noneDead(v.now[i], quietWithin) {
				why += " None came in the last minute."
			}
			add(api.Finding{
				Queue: q.Name, Messages: n, Why: fmt.Sprintf("%s %s in %s.", why, are(q.Dead, "dead letter"), q.DLQ),
				Action: api.FindingAction{Text: "Read the errors by group, fix their cause, then redrive.", Command: Command("dead", "groups", q.Name), Page: QueuePage(q.Name, "/dead")},
			})
		}
	}
}

// errorText is an error with its code, unless it begins with it.
func errorText(code, text string) string {
	text = strings.TrimSuffix(firstLine(text), ".")
	if code != "" && !strings.HasPrefix(text, code) {
		text = "[" + code + "] " + text
	}
	return text
}

// are returns "1 thing is" or "7 things are".
func are(n int64, thing string) string {
	if n == 1 {
		return wire.Plural(n, thing) + " is"
	}
	return wire.Plural(n, thing) + " are"
}

func deadLetters(v *view, add func(api.Finding)) {
	for i := range v.Queues {
		q := &v.Queues[i]
		if q.Dead > 0 && riseOfDead(v, i) <= risingDead {
			add(api.Finding{
				Queue: q.Name, Messages: q.Dead, Why: q.DLQ + " keeps them until an operator redrives or deletes them.",
				Action: api.FindingAction{Text: "Redrive them if the cause is fixed, or delete them.", Command: Command("dead", "groups", q.Name), Page: QueuePage(q.Name, "/dead")},
			})
		}
	}
}

func starvedTenants(v *view, add func(api.Finding)) {
	for i := range v.Queues {
		q := &v.Queues[i]
		if q.Detail == nil || q.Detail.StarvedFlows == 0 {
			continue
		}
		f := api.Finding{
			Queue: q.Name, Tenants: q.Detail.StarvedFlows, Why: "None of their messages was delivered while messages of others were.",
			Action: api.FindingAction{Text: "Add consumers, or limit the tenants that keep the consumers busy.", Command: Command("noisy", q.Name), Page: QueuePage(q.Name, "/tenants")},
		}
		if q.Noise != nil {
			f.Why = "None of the messages of " + names(q.Noise.Starved, f.Tenants, waitingKey) + " was delivered while messages of others were."
			for _, w := range q.Noise.Starved {
				f.Messages += w.Pending
			}
		}
		f.Messages = max(f.Messages, 1) // a flow that starves has a message
		add(f)
	}
}

func noisyTenants(v *view, add func(api.Finding)) {
	for i := range v.Queues {
		q := &v.Queues[i]
		d := q.Detail
		if d == nil || q.Consumers == 0 || d.NoisyFlows == 0 || d.QuietReady == 0 || time.Duration(d.QuietOldestAgeMs)*time.Millisecond < noisyWait || q.Noise == nil {
			continue
		}
		why := names(q.Noise.Noisy, d.NoisyFlows, func(n api.NoisyFlow) string {
			return fmt.Sprintf("%s has %.0f %% of the consumers' work, but is entitled to %.0f %%", n.Key, 100*max(n.BusyShare, n.InFlightShare), 100*n.FairShare)
		})
		add(api.Finding{
			Queue: q.Name, Messages: d.QuietReady, Tenants: max(q.Tenants-d.NoisyFlows, 0),
			Why: why + "; meanwhile " + names(q.Noise.Waiting, len(q.Noise.Waiting), func(w api.WaitingFlow) string {
				return w.Key + " has waited for " + wire.Span(time.Duration(w.WaitMs)*time.Millisecond)
			}) + "." + defaultKeyText(q.Noise.Noisy),
			Action: api.FindingAction{Text: "Limit the concurrency of its messages with a throttle key, or add consumers.", Command: Command("noisy", q.Name), Page: QueuePage(q.Name, "/tenants")},
		})
	}
}

// defaultKey is the fairness key of messages that have none. Package hooks has it, too.
const defaultKey = "default"

// defaultKeyText explains the default fairness key, if it is among noisy ones: it is no tenant.
func defaultKeyText(noisy []api.NoisyFlow) string {
	if !slices.ContainsFunc(noisy, func(n api.NoisyFlow) bool { return n.Key == defaultKey }) {
		return ""
	}
	return " " + defaultKey + " has the messages that came without a fairness key, or while on_enqueue failed; these keep it."
}

func waitingKey(f api.WaitingFlow) string { return f.Key }

// names lists up to three names of all.
func names[T any](list []T, all int, name func(T) string) string {
	const most = 3
	var parts []string
	for _, one := range list[:min(len(list), most)] {
		parts = append(parts, name(one))
	}
	text := strings.Join(parts, ", ")
	if more := all - len(parts); more > 0 && len(parts) > 0 {
		text += " and " + strconv.Itoa(more) + " more"
	}
	return text
}

func oldMessages(v *view, add func(api.Finding)) {
	for i := range v.Queues {
		q, age := &v.Queues[i], v.now[i].oldest
		if q.Consumers == 0 || q.ready() == 0 || age < agingAge {
			continue
		}
		before := v.before[i].before(v.now[i], agingAge+pointEvery)
		span := v.now[i].at.Sub(before.at)
		rises := span >= agingAge && age-before.oldest >= span*4/5
		if age < oldAge && !rises {
			continue
		}
		why := "The oldest message is " + wire.Span(age) + " old."
		if rises {
			why += " It gets older: the consumers do not keep up, or do not reach it."
		}
		add(api.Finding{
			Queue: q.Name, Messages: q.ready(), Tenants: q.Tenants, Why: why,
			Action: api.FindingAction{Text: "Add consumers, or find out what the oldest messages wait for.", Command: Command("explain", "queue", q.Name), Page: QueuePage(q.Name, "/messages")},
		})
	}
}

func expiringLeases(v *view, add func(api.Finding)) {
	for i := range v.Queues {
		q, before := &v.Queues[i], v.before[i].before(v.now[i], expiredWithin)
		expired, delivered := rise(before.expired, v.now[i].expired), rise(before.delivered, v.now[i].delivered)
		if expired > expiredLeases && expired*expiredPart > delivered {
			add(api.Finding{
				Queue: q.Name, Messages: expired, Why: fmt.Sprintf("%s of %s deliveries of the last five minutes ended with an expired lease: consumers die, hang or work for longer than visibility_timeout_ms.", wire.Grouped(expired), wire.Grouped(max(delivered, expired))),
				Action: api.FindingAction{Text: "Check that the consumers are alive. Let them extend their leases, or raise visibility_timeout_ms.", Command: Command("queue", "inspect", q.Name), Page: QueuePage(q.Name, "")},
			})
		}
	}
}

func refusals(v *view, add func(api.Finding)) {
	for i := range v.Queues {
		q := &v.Queues[i]
		if n := rise(v.before[i].before(v.now[i], refusedWithin).refused, v.now[i].refused); n > refusedMany {
			add(api.Finding{
				Queue: q.Name, Messages: n, Why: fmt.Sprintf("Most refusals of this queue have the error number %d (docs/errors.md).", q.RefusedBy),
				Action: api.FindingAction{Text: "Drain the backlog, or fix the clients.", Command: Command("queue", "inspect", q.Name), Page: QueuePage(q.Name, "")},
			})
		}
	}
}

func lateSchedules(v *view, add func(api.Finding)) {
	for i := range v.Queues {
		q := &v.Queues[i]
		if q.Late == nil || v.At.Sub(q.Late.Due) < lateAfter {
			continue
		}
		why := "Its run of " + wire.Timestamp(q.Late.Due.UnixNano()) + " was not made."
		if q.Late.Why != "" {
			why += " The queue refuses it: " + q.Late.Why
		}
		add(api.Finding{
			Queue: q.Name, Schedule: q.Late.Name, Since: wire.Timestamp(q.Late.Due.UnixNano()), Why: why,
			Action: api.FindingAction{Text: "Make room in the queue; then fila makes the run.", Command: Command("schedule", "show", q.Name, q.Late.Name), Page: QueuePage(q.Name, "/schedules")},
		})
	}
}

func heldByLimits(v *view, add func(api.Finding)) {
	for i := range v.Queues {
		q := &v.Queues[i]
		for j := range q.Blocked {
			if b := &q.Blocked[j]; b.throttled() && b.Wait >= HeldAfter {
				add(heldByLimit(q, b, v.backlogs[q.Name+"\x00"+b.Gate]))
			}
		}
	}
}

// heldByLimit is the finding about a throttle that has blocked messages of a queue for long.
func heldByLimit(q *Queue, b *Blocked, past backlogs) api.Finding {
	key := strings.TrimPrefix(b.Gate, "throttle:")
	f := api.Finding{
		Queue: q.Name, Gate: b.Gate, Messages: b.Messages, Tenants: b.Tenants,
		Why: fmt.Sprintf("%s admits %s. The first message has waited for %s.", b.Gate, b.Limits, wire.Span(b.Wait)),
		Action: api.FindingAction{
			Text: "Raise the limit if the destination can take more.", Command: Command("throttle", "show", key), Page: ThrottlePage(key),
		},
	}
	if b.Change != nil {
		past = past.after(b.Change.At)
		f.Why += fmt.Sprintf(" %s at %s, %s.", capital(b.Change.Text()), b.Change.At, reasonText(b.Change.Reason))
	} else if strings.Contains(b.SetBy, api.SetByOperator) {
		f.Why += " An operator set this limit at run time."
	}
	rest, drains := past.drains()
	switch {
	case drains:
		f.Severity = api.SeverityInfo
		f.Why += " The backlog drains: it is empty in about " + wire.Span(rest.Round(time.Second)) + "."
		f.Action.Text = "Nothing has to be done if that is soon enough."
	case !past.grows():
		f.Severity = api.SeverityInfo
		if b.Change != nil && past.span() == 0 {
			f.Action.Text = "Whether the backlog drains with these limits is known in half a minute."
		}
	case b.Change != nil && b.Change.Lowers():
		f.Change = b.Change
		f.Action.Text = fmt.Sprintf("Set the limits of %s back to %s, unless the change is meant.", b.Change.Key, b.Change.Old.Text())
		f.Action.Command = SetBack(b.Change)
	}
	return f
}

// reasonText says why a change was made. Nobody has to look for a reason that was not given.
func reasonText(reason string) string {
	if reason == "" {
		return "without a reason"
	}
	return "for the reason " + wire.Quote(reason)
}

// SetBack is the command that undoes a change of limits, unless they were changed since.
func SetBack(c *api.LimitsChange) string {
	req := c.Back()
	text := Command("throttle", "set", c.Key) + limitFlags("--", req.ThrottleLimits)
	for _, name := range req.Unset {
		text += " --unset " + strings.TrimSuffix(name, "_ms")
	}
	return text + limitFlags("--if-", *req.If)
}

// limitFlags returns limits as flags of a command.
func limitFlags(prefix string, l api.ThrottleLimits) (text string) {
	add := func(flag, value string) {
		if value == "" || value == "0" {
			value = "none"
		}
		text += " " + prefix + flag + " " + value
	}
	if l.Rate != nil {
		add("rate", string(*l.Rate))
	}
	if l.Burst != nil {
		add("burst", strconv.FormatFloat(*l.Burst, 'f', -1, 64))
	}
	if l.Concurrency != nil {
		add("concurrency", strconv.FormatInt(*l.Concurrency, 10))
	}
	if l.Limit != nil {
		add("limit", strconv.FormatInt(*l.Limit, 10))
	}
	if l.WindowMs != nil && *l.WindowMs == 0 {
		add("window", "")
	} else if l.WindowMs != nil {
		add("window", wire.FormatMs(*l.WindowMs))
	}
	if l.Adapt != nil {
		add("adapt", l.Adapt.Text())
	}
	if l.Level != nil {
		add("level", strconv.FormatFloat(*l.Level, 'f', -1, 64))
	}
	return text
}

// capital returns a text with a capital letter if it begins with an article: the names of clients
// stay as they are.
func capital(text string) string {
	for _, article := range []string{"the ", "an ", "a "} {
		if strings.HasPrefix(text, article) {
			return strings.ToUpper(text[:1]) + text[1:]
		}
	}
	return text
}
