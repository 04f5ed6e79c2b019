package messagecmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire"
)

// maxPayload is more than any NATS server accepts.
const maxPayload = 64 << 20

// outgoing is a message to publish.
type outgoing struct {
	n       int64 // number of the message, or of its line; 0 for a single message
	payload []byte
	options []client.PublishOption
}

// source yields messages, or an error that ends it.
type source = iter.Seq2[outgoing, error]

// template is the common part of all messages of a command.
type template struct {
	payload  []byte
	headers  []header
	options  []client.PublishOption
	dedupeID string
}

type header struct{ name, value string }

// message builds a message from the flags.
func (f *publishFlags) message(cmd *cobra.Command) (*template, error) {
	t := &template{dedupeID: f.dedupeID}
	for _, text := range f.headers {
		name, value, err := command.ParseHeader("header", text)
		if err != nil {
			return nil, err
		}
		t.headers = append(t.headers, header{name, value})
	}
	flags := cmd.Flags()
	if flags.Changed("delay") {
		t.options = append(t.options, client.Delay(f.delay.Duration()))
	}
	if flags.Changed("ttl") {
		t.options = append(t.options, client.TTL(f.ttl.Duration()))
	}
	if flags.Changed("dedupe-id") && f.dedupeID == "" {
		return nil, command.UsageError("--dedupe-id is empty")
	}
	return t, nil
}

func (t *template) outgoing(n int64, payload []byte) outgoing {
	m := outgoing{n: n, payload: payload, options: slices.Clone(t.options)}
	for _, h := range t.headers {
		m.options = append(m.options, client.Header(h.name, h.value))
	}
	switch {
	case t.dedupeID == "":
	case n == 0:
		m.options = append(m.options, client.DedupeID(t.dedupeID))
	default:
		m.options = append(m.options, client.DedupeID(fmt.Sprintf("%s-%d", t.dedupeID, n)))
	}
	return m
}

// times yields the same message n times.
func (t *template) times(count int64) source {
	return func(yield func(outgoing, error) bool) {
		for n := range count {
			if !yield(t.outgoing(n+1, t.payload), nil) {
				return
			}
		}
	}
}

// perLine yields a message for every line, without the line's end. Lines of JSON describe
// messages; empty lines are skipped.
func (t *template) perLine(in io.Reader, describes bool) source {
	return func(yield func(outgoing, error) bool) {
		var n int64
		for line, err := range command.Lines(in, maxPayload) {
			n++
			line = bytes.Clone(bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")))
			var m outgoing
			switch {
			case errors.Is(err, command.ErrLineTooLong):
				err = command.UsageError("line %d has more than %s: no NATS server takes that", n, terminal.Size(maxPayload))
			case err != nil:
				err = fmt.Errorf("read line %d: %w", n, command.PathReason(err))
			case !describes:
				m = t.outgoing(n, line)
			case len(bytes.TrimSpace(line)) == 0:
				continue
			default:
				if m, err = t.described(n, line); err != nil {
					err = command.UsageError("line %d: %w", n, err)
				}
			}
			if !yield(m, err) || err != nil {
				return
			}
		}
	}
}

// describedMessage is a line of --jsonl. The fields from ID on appear in the output of fila
// consume --json and are ignored here.
type describedMessage struct {
	Payload       json.RawMessage            `json:"payload"`
	PayloadBase64 []byte                     `json:"payload_base64"`
	Headers       map[string]json.RawMessage `json:"headers"`
	DedupeID      string                     `json:"dedupe_id"`
	Delay         json.RawMessage            `json:"delay"`
	TTL           json.RawMessage            `json:"ttl"`

	ID         string `json:"id"`
	Queue      string `json:"queue"`
	Key        string `json:"key"`
	Attempt    int    `json:"attempt"`
	EnqueuedAt string `json:"enqueued_at"`
}

func (t *template) described(n int64, line []byte) (outgoing, error) {
	var d describedMessage
	if refused := wire.DecodeStrict(line, &d); refused != nil {
		return outgoing{}, errors.New(refused.Description)
	}
	payload, err := d.payload()
	if err != nil {
		return outgoing{}, err
	}
	own, err := d.headers()
	if err != nil {
		return outgoing{}, err
	}
	with := *t
	for _, h := range t.headers {
		if _, ok := d.Headers[h.name]; !ok {
			own = append(own, h)
		}
	}
	with.headers = own
	if d.DedupeID != "" {
		with.dedupeID = ""
	}
	m := with.outgoing(n, payload)
	if d.DedupeID != "" {
		m.options = append(m.options, client.DedupeID(d.DedupeID))
	}
	for _, o := range []struct {
		name  string
		value json.RawMessage
		set   func(ms terminal.Millis)
	}{
		{"delay", d.Delay, func(v terminal.Millis) { m.options = append(m.options, client.Delay(v.Duration())) }},
		{"ttl", d.TTL, func(v terminal.Millis) { m.options = append(m.options, client.TTL(v.Duration())) }},
	} {
		if len(o.value) == 0 {
			continue
		}
		var v terminal.Millis
		if err := v.Set(strings.Trim(string(o.value), `"`)); err != nil {
			return outgoing{}, fmt.Errorf("%s: %w", o.name, err)
		}
		o.set(v)
	}
	return m, nil
}

func (d *describedMessage) payload() ([]byte, error) {
	switch {
	case d.Payload == nil && d.PayloadBase64 == nil:
		return nil, errors.New(`payload is missing: allowed is {"payload":..,"headers":{..}}, "" for an empty one`)
	case d.Payload == nil:
		return d.PayloadBase64, nil
	case d.PayloadBase64 != nil:
		return nil, errors.New("payload and payload_base64: one of them is allowed")
	case d.Payload[0] == '"':
		var text string
		err := json.Unmarshal(d.Payload, &text)
		return []byte(text), err
	}
	return d.Payload, nil
}

// headers accepts one value or a list for each name, in the form of [wire.ShowText]. It skips
// headers that fila adds to deliveries.
func (d *describedMessage) headers() ([]header, error) {
	var all []header
	for name, raw := range d.Headers {
		if wire.OfDelivery(name) {
			continue
		}
		var values []string
		if err := json.Unmarshal(raw, &values); err != nil {
			values = make([]string, 1)
			if err := json.Unmarshal(raw, &values[0]); err != nil {
				return nil, fmt.Errorf("header %q: allowed is a string or a list of strings", name)
			}
		}
		for _, value := range values {
			value = wire.NamedKey(value)
			if !command.HeaderAllowed(name, value) {
				return nil, fmt.Errorf("header %q: allowed is one line, without spaces or colons in the name", name)
			}
			all = append(all, header{name, value})
		}
	}
	return all, nil
}
