package messagecmd

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire"
)

// maxPayload is more than any NATS server takes.
const maxPayload = 64 << 20

// outgoing is a message to be published.
type outgoing struct {
	n       int64 // its number, of the line if there are lines; 0 if it is the only one
	payload []byte
	options []client.PublishOption
}

// source returns the next message, or io.EOF.
type source func() (outgoing, error)

// template is what all messages of a command have in common.
type template struct {
	payload  []byte
	headers  []header
	options  []client.PublishOption
	dedupeID string
}

type header struct{ name, value string }

// message reads the flags that say how a message looks.
func (f *publishFlags) message(cmd *cobra.Command) (*template, error) {
	t := &template{dedupeID: f.dedupeID}
	for _, text := range f.headers {
		name, value, ok := strings.Cut(text, "=")
		if !ok || !headerAllowed(name, value) {
			return nil, command.UsageError("--header %q: allowed is name=value, on one line, without spaces or colons in the name", text)
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

func headerAllowed(name, value string) bool {
	return name != "" && !strings.ContainsAny(name, ": \t\r\n") && !strings.ContainsAny(value, "\r\n")
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

// times is the same message so many times.
func (t *template) times(count int64, numbered bool) source {
	var n int64
	return func() (outgoing, error) {
		if n == count {
			return outgoing{}, io.EOF
		}
		n++
		if !numbered {
			return t.outgoing(0, t.payload), nil
		}
		return t.outgoing(n, t.payload), nil
	}
}

// perLine is a message for every line, without the end of the line.
func (t *template) perLine(in io.Reader) source {
	next := readLines(in)
	return func() (outgoing, error) {
		line, n, err := next()
		if err != nil {
			return outgoing{}, err
		}
		return t.outgoing(n, line), nil
	}
}

// perJSON is the message that every line describes; empty lines are skipped.
func (t *template) perJSON(in io.Reader) source {
	next := readLines(in)
	return func() (outgoing, error) {
		for {
			line, n, err := next()
			if err != nil {
				return outgoing{}, err
			}
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			m, err := t.described(n, line)
			if err != nil {
				err = command.UsageError("line %d: %w", n, err)
			}
			return m, err
		}
	}
}

// readLines returns a function that returns the next line in memory of its own,
// and its number.
func readLines(in io.Reader) func() ([]byte, int64, error) {
	reader := bufio.NewReaderSize(in, 64<<10)
	var n int64
	return func() ([]byte, int64, error) {
		var line []byte
		for {
			part, err := reader.ReadSlice('\n')
			line = append(line, part...)
			switch {
			case len(line) > maxPayload:
				return nil, 0, command.UsageError("line %d has more than %s: no NATS server takes that", n+1, terminal.Size(maxPayload))
			case errors.Is(err, bufio.ErrBufferFull):
				continue
			case errors.Is(err, io.EOF) && len(line) > 0, err == nil:
				n++
				return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), n, nil
			case errors.Is(err, io.EOF):
				return nil, 0, io.EOF
			}
			return nil, 0, fmt.Errorf("read line %d: %w", n+1, command.PathReason(err))
		}
	}
}

// describedMessage is a line of --jsonl. The fields from ID on are those of
// fila consume --json that mean nothing here.
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

// headers takes one value or a list of them for each name. Those that fila adds
// to a delivery are left out.
func (d *describedMessage) headers() ([]header, error) {
	var all []header
	for name, raw := range d.Headers {
		if len(name) > 5 && strings.EqualFold(name[:5], "Fila-") && name != wire.HeaderDelay && name != wire.HeaderNotBefore {
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
			if !headerAllowed(name, value) {
				return nil, fmt.Errorf("header %q: allowed is one line, without spaces or colons in the name", name)
			}
			all = append(all, header{name, value})
		}
	}
	return all, nil
}
