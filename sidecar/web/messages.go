package web

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// messagesData has the filtered messages of a queue, or of a dead letter queue with its
// error groups.
type messagesData struct {
	Queue    string
	Source   string // the queue whose dead letters these are, or ""
	Filter   filterForm
	Messages []api.PeekedMessage
	After    bool   // not the first page
	First    string // address of the first page
	Next     string // address of the next page, "" at the end
	Groups   *deadGroups
	Rates    *deadRates // of dead letters
	Jobs     []api.JobInfo
	Ops      []jobOp
}

const (
	perPeek      = 50
	maxGroups    = 50
	recentJobs   = 5
	shownHeaders = 4 << 10 // bytes
)

// filterForm is a filter as form fields.
type filterForm struct {
	State, Key, Header, AttemptsMin, EnqueuedAfter, EnqueuedBefore, Consumer, Gate string
	Reason, ErrorCode, ErrorContains, ErrorGroup, DiedAfter, DiedBefore            string

	Named   bool     // it is not empty
	Mistake string   // why it is invalid
	Fields  []field  // its non-empty fields
	Reasons []string // all reasons
}

// readFilter parses a filter. An empty one selects everything.
func readFilter(q url.Values) (filterForm, api.Filter, error) {
	f := filterForm{Reasons: wire.Reasons()}
	for _, one := range []struct {
		name string
		to   *string
	}{
		{"state", &f.State},
		{"key", &f.Key},
		{"header", &f.Header},
		{"attempts_min", &f.AttemptsMin},
		{"enqueued_after", &f.EnqueuedAfter},
		{"enqueued_before", &f.EnqueuedBefore},
		{"consumer", &f.Consumer},
		{"gate", &f.Gate},
		{"dead_reason", &f.Reason},
		{"error_code", &f.ErrorCode},
		{"error_contains", &f.ErrorContains},
		{"error_group", &f.ErrorGroup},
		{"died_after", &f.DiedAfter},
		{"died_before", &f.DiedBefore},
	} {
		if *one.to = strings.TrimSpace(q.Get(one.name)); *one.to != "" {
			f.Named = true
			f.Fields = append(f.Fields, field{one.name, *one.to})
		}
	}
	filter := api.Filter{
		All: !f.Named, State: f.State, EnqueuedAfter: f.EnqueuedAfter, EnqueuedBefore: f.EnqueuedBefore, Consumer: f.Consumer, Gate: f.Gate,
		Reason: f.Reason, ErrorCode: f.ErrorCode, ErrorContains: f.ErrorContains, ErrorGroup: f.ErrorGroup, DiedAfter: f.DiedAfter, DiedBefore: f.DiedBefore,
	}
	if f.Key != "" {
		filter.Keys = []string{f.Key}
	}
	if f.Header != "" {
		name, value, ok := strings.Cut(f.Header, "=")
		if !ok || name == "" {
			return f, filter, wrongField("header", "%q is not a header: use name=value", f.Header)
		}
		filter.Header = map[string]string{strings.TrimSpace(name): value}
	}
	if f.AttemptsMin != "" {
		n, err := strconv.ParseUint(f.AttemptsMin, 10, 32)
		if err != nil || n == 0 {
			return f, filter, wrongField("attempts_min", "%q is not a number of attempts: use 1 or more", f.AttemptsMin)
		}
		filter.AttemptsMin = uint32(n)
	}
	return f, filter, nil
}

// messages serves the messages of a queue.
func messages(a *ask) (any, error) {
	queue := a.r.PathValue("queue")
	if wire.IsDLQ(queue) {
		return nil, &elsewhere{href("", queuePath(wire.Source(queue), "/dead")) + query(a.r.URL.RawQuery)}
	}
	return listMessages(a, queue)
}

// query returns the query of an address with its question mark.
func query(raw string) string {
	if raw == "" {
		return ""
	}
	return "?" + raw
}

func listMessages(a *ask, queue string) (*messagesData, error) {
	d := &messagesData{Queue: queue, Ops: jobOps(queue)}
	if wire.IsDLQ(queue) {
		d.Source = wire.Source(queue)
	}
	form, filter, err := readFilter(a.r.URL.Query())
	d.Filter = form
	if err == nil {
		req := api.PeekRequest{Filter: &filter, Limit: perPeek, PayloadBytes: 0}
		if text := a.query("after"); text != "" {
			if req.After, err = strconv.ParseUint(text, 10, 64); err != nil {
				return nil, fmt.Errorf("%q is not a position in the list", text)
			}
			d.After = true
		}
		err = d.peek(a, req)
	}
	var refused *wire.Error
	switch {
	case err == nil:
	case refusedWith(err, wire.CodeQueueNotFound):
		return nil, err
	case errors.As(err, &refused) && refused.Code != 400: // not about the filter
		return nil, err
	default:
		d.Filter.Mistake = err.Error()
		if refused != nil {
			d.Filter.Mistake = refused.Description
		}
	}
	var jobs api.JobList
	if err := a.verb(api.VerbJobList, "", api.JobListRequest{Queue: queue, Limit: recentJobs}, &jobs); err != nil {
		return nil, err
	}
	d.Jobs = jobs.Jobs
	return d, nil
}

// peek fills a page with messages. Matching messages may be far apart: it reads on until
// the page is full or the time is up.
func (d *messagesData) peek(a *ask, req api.PeekRequest) error {
	for range maxPeeks {
		var reply api.PeekReply
		if err := a.verb(api.VerbPeek, d.Queue, req, &reply); err != nil {
			return err
		}
		d.Messages = append(d.Messages, reply.Messages...)
		req.After, req.Limit = reply.Next, perPeek-len(d.Messages)
		if req.After == 0 || req.Limit == 0 {
			break
		}
	}
	q := a.r.URL.Query()
	q.Del("after")
	d.First = a.path() + "?" + q.Encode()
	if req.After != 0 {
		q.Set("after", strconv.FormatUint(req.After, 10))
		d.Next = a.path() + "?" + q.Encode()
	}
	return nil
}

// maxPeeks is how many peeks one page takes at most.
const maxPeeks = 20

// messageData is one message.
type messageData struct {
	api.MessageInfo
	Source  string // the original queue of a dead letter
	Headers []field
	Asked   bool   // the payload is shown
	Text    string // of the payload
	Binary  bool   // the payload is no text: Text has it in base64
	Trace   string // id of its trace
	TraceAt string // address of the trace; empty: none
	Life    life
	Choice  []routeRow // its routes, in its order
}

// routeRow is a route of a message with the last attempt that went by it.
type routeRow struct {
	api.RouteState
	Leased bool             // the message is in flight by it
	Last   *api.AttemptInfo // that has ended; nil: none is known
}

// choiceOf returns the routes of a message.
func choiceOf(m *api.MessageInfo) []routeRow {
	rows := make([]routeRow, len(m.Routes))
	for i := range rows {
		rows[i] = routeRow{RouteState: m.Routes[i], Leased: m.Route == m.Routes[i].Name}
		for k := range m.History {
			if m.History[k].Route == m.Routes[i].Name {
				rows[i].Last = &m.History[k]
			}
		}
	}
	return rows
}

// Weighted reports whether the routes have weights.
func (d *messageData) Weighted() bool { return len(d.Choice) > 0 && d.Choice[0].Weight > 0 }

// Title is the title of the page.
func (d *messageData) Title() string { return "Message " + shortID(d.ID) }

// Crumbs are the pages above it.
func (d *messageData) Crumbs() []crumb { return messageCrumbs(d.Queue) }

// messageCrumbs are the pages above a message of a queue.
func messageCrumbs(queue string) []crumb {
	if wire.IsDLQ(queue) {
		source := wire.Source(queue)
		return crumbsOf(source, crumb{"Dead letters", queuePath(source, "/dead")})
	}
	return crumbsOf(queue, crumb{"Messages", queuePath(queue, "/messages")})
}

// showRequest requests a message with its headers and at most n bytes of payload.
func showRequest(queue, id string, payload int) api.MessageShowRequest {
	return api.MessageShowRequest{MessageRequest: api.MessageRequest{Queue: queue, ID: id}, PayloadBytes: max(payload, shownHeaders)}
}

func message(a *ask) (any, error) {
	d := &messageData{Asked: a.query("payload") == "show" && a.principal.Role >= Operator}
	payload := 0
	if d.Asked {
		payload = api.MaxPeekPayload
	}
	if err := a.verb(api.VerbMessageShow, "", showRequest(a.query("queue"), a.r.PathValue("id"), payload), &d.MessageInfo); err != nil {
		return nil, err
	}
	if wire.IsDLQ(d.Queue) {
		d.Source = wire.Source(d.Queue)
	}
	d.Headers = headersOf(&d.PeekedMessage)
	for _, h := range d.Headers {
		if strings.EqualFold(h.Name, "traceparent") {
			if p, ok := wire.ParseTraceParent(h.Value); ok {
				d.Trace = hex.EncodeToString(p.Trace[:])
				if p.Sampled { // others are not stored
					d.TraceAt = a.web.HTTP.Trace(d.Trace)
				}
			}
		}
	}
	d.Text, d.Binary = payloadText(&d.PeekedMessage)
	dead := ""
	if d.Dead != nil {
		dead = d.Dead.At
	}
	d.Choice = choiceOf(&d.MessageInfo)
	d.Life = lifeOf(d.EnqueuedAt, dead, d.History, time.Now())
	return d, nil
}

// payloadText returns the payload as text, or in base64.
func payloadText(m *api.PeekedMessage) (text string, binary bool) {
	if m.Payload != nil {
		return *m.Payload, false
	}
	data, _ := json.Marshal(m.PayloadBase64) // cannot fail for bytes
	return strings.Trim(string(data), `"`), true
}

// headersOf returns the headers of a message by name, one row per value.
func headersOf(m *api.PeekedMessage) (list []field) {
	for name, values := range m.Headers {
		for _, value := range values {
			list = append(list, field{name, value})
		}
	}
	slices.SortStableFunc(list, func(a, b field) int {
		return cmp.Or(cmp.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// runNow ends the delay of a message.
func runNow(a *ask, form url.Values) (string, error) {
	var reply api.MessageReply
	if err := a.verb(api.VerbMessageRunNow, "", messageOf(form), &reply); err != nil {
		return "", err
	}
	if !reply.Done {
		return "It had no delay to end.", nil
	}
	return "Its delay has ended.", nil
}

// cancelMessage removes a message.
func cancelMessage(a *ask, form url.Values) (string, error) {
	var reply api.MessageReply
	if err := a.verb(api.VerbMessageDelete, "", messageOf(form), &reply); err != nil {
		return "", err
	}
	form.Set("queue", reply.Queue)
	return fmt.Sprintf("Message %s was removed from %s.", reply.ID, reply.Queue), nil
}

func messageOf(form url.Values) api.MessageRequest {
	return api.MessageRequest{ID: form.Get("id"), Queue: form.Get("queue")}
}

func backToMessages(form url.Values) string { return messagesPath("", form.Get("queue"), filterForm{}) }

// filterFields lists the conditions of a filter, none for one that selects all messages.
func filterFields(f *api.Filter) (list []field) {
	if f == nil {
		return nil
	}
	for _, key := range f.Keys {
		list = append(list, field{"key", key})
	}
	for _, name := range slices.Sorted(maps.Keys(f.Header)) {
		list = append(list, field{"header", name + "=" + f.Header[name]})
	}
	if n := len(f.IDs); n == 1 {
		list = append(list, field{"message", f.IDs[0]})
	} else if n > 1 {
		list = append(list, field{"selected", howMany(n, "message")})
	}
	if f.AttemptsMin > 0 {
		list = append(list, field{"attempts", grouped(f.AttemptsMin) + " or more"})
	}
	for _, one := range []field{
		{"state", f.State},
		{"enqueued after", f.EnqueuedAfter},
		{"enqueued before", f.EnqueuedBefore},
		{"consumer", f.Consumer},
		{"gate", f.Gate},
		{"error code", f.ErrorCode},
		{"error contains", f.ErrorContains},
		{"error group", f.ErrorGroup},
		{"reason", f.Reason},
		{"died after", f.DiedAfter},
		{"died before", f.DiedBefore},
	} {
		if one.Value != "" {
			list = append(list, one)
		}
	}
	return list
}

// spanMs prints milliseconds.
func spanMs(ms int64) string { return wire.Span(time.Duration(ms) * time.Millisecond) }

// piece is a part of a sentence: a text, or a time.
type piece struct{ Text, Time string }

var timeInSentence = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// pieces splits a sentence, so that its times can be shown in the viewer's zone.
func pieces(sentence string) (list []piece) {
	at := 0
	for _, found := range timeInSentence.FindAllStringIndex(sentence, -1) {
		list = append(list, piece{Text: sentence[at:found[0]]}, piece{Time: sentence[found[0]:found[1]]})
		at = found[1]
	}
	return append(list, piece{Text: sentence[at:]})
}
