package system

import (
	"context"
	"errors"
	"maps"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/wire"
)

// Subjects of the bare hops. The middle forwards messages and answers requests.
const (
	hopsEnqueue = "hops.enqueue"
	hopsConfirm = "hops.confirm" // not forwarded
	hopsDeliver = "hops.deliver"
	hopsAck     = "hops.ack.0"
)

// hops is the middle as a target.
type hops struct{ queue *Queue }

func (hops) SetUp(context.Context) error           { return nil }
func (hops) TearDown(context.Context) error        { return nil }
func (hops) Held(context.Context) (Content, error) { return Content{}, nil }
func (hops) Ack() []byte                           { return nil }

func (h hops) Subject() string {
	if h.queue.Unread {
		return hopsConfirm
	}
	return hopsEnqueue
}

func (hops) Refused(m *nats.Msg) error {
	if unanswered(m) {
		return nats.ErrNoResponders
	}
	return nil
}

func (hops) Consume(ctx context.Context, nc *nats.Conn, _ string, _ int, handle Handler) (func(context.Context) error, error) {
	sub, err := subscribe(nc, hopsDeliver, "consumers", func(m *nats.Msg) { handle(m.Data, m.Reply) })
	if err != nil {
		return nil, err
	}
	stop := func(ctx context.Context) error { // the server sends messages of the next phase to a group that it still knows
		return errors.Join(sub.Unsubscribe(), flush(ctx, nc))
	}
	return stop, flush(ctx, nc)
}

// startMiddle does the minimum of fila: it confirms messages, forwards them, and confirms acks,
// over the same kind of connection to a server in the same process. With likeFila, forwarded
// messages look like deliveries of fila.
func startMiddle(srv *server.Server, likeFila bool) (*nats.Conn, error) {
	nc, err := nats.Connect("", nats.InProcessServer(srv), nats.Name("middle"))
	if err != nil {
		return nil, err
	}
	confirmation := []byte(`{"id":"00000000-0000-7000-8000-000000000000","queue":"bench"}`) // as long as the payloads of fila
	answer := func(m *nats.Msg, body []byte) {
		if m.Reply != "" {
			_ = nc.Publish(m.Reply, body) // fails only when the process ends
		}
	}
	sendOn := func(m *nats.Msg) {
		_ = nc.PublishMsg(&nats.Msg{Subject: hopsDeliver, Reply: hopsAck, Header: m.Header, Data: m.Data})
	}
	if likeFila {
		sendOn = (&imitation{nc: nc, header: deliveryHeaders()}).sendOn
	}
	for subject, work := range map[string]nats.MsgHandler{
		hopsEnqueue: func(m *nats.Msg) {
			answer(m, confirmation)
			sendOn(m)
		},
		hopsConfirm:    func(m *nats.Msg) { answer(m, confirmation) },
		hopsAck:        func(m *nats.Msg) { answer(m, nil) },
		hopsAck + ".>": func(m *nats.Msg) { answer(m, nil) },
	} {
		if _, err = subscribe(nc, subject, "", work); err != nil {
			break
		}
	}
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nil
}

// imitation forwards messages with what fila's protocol adds to a delivery, without the work
// behind it: headers of the same length, and a unique ack subject for each message.
type imitation struct {
	nc     *nats.Conn
	header nats.Header // reused; the client library copies it
	n      uint64
}

// deliveryHeaders returns headers of the same length as those in fila's deliveries.
func deliveryHeaders() nats.Header {
	const at = "2026-01-02T03:04:05.678901234Z"
	return nats.Header{
		wire.HeaderID: {"00000000-0000-7000-8000-000000000000"}, wire.HeaderQueue: {"bench-0123456789"}, wire.HeaderKey: {"1"},
		wire.HeaderAttempt: {"1"}, wire.HeaderEnqueuedAt: {at}, wire.HeaderDeadline: {at},
	}
}

// sendOn forwards a message. It runs on one goroutine.
func (i *imitation) sendOn(m *nats.Msg) {
	i.n++
	maps.Copy(i.header, m.Header)
	_ = i.nc.PublishMsg(&nats.Msg{Subject: hopsDeliver, Reply: i.ackSubject(), Header: i.header, Data: m.Data})
}

// ackSubject returns a new subject with a token of 27 characters, as long as fila's for the
// millionth message of a queue.
func (i *imitation) ackSubject() string {
	const head, tail = hopsAck + ".", ".bench-0123456789"
	subject := []byte(head + "000000000000000000000000000" + tail)
	at := len(subject) - len(tail)
	for n := i.n; n > 0; n /= 10 {
		at--
		subject[at] = byte('0' + n%10)
	}
	return string(subject)
}
