package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/wire"
)

// Subjects of the bare hops. The middle sends on what it gets and answers what
// asks for an answer.
const (
	hopsEnqueue = "hops.enqueue"
	hopsConfirm = "hops.confirm" // not sent on
	hopsDeliver = "hops.deliver"
	hopsAck     = "hops.ack.0"
)

// nodeMaxPending is what fila's embedded server allows.
const nodeMaxPending = 256 << 20

// RunNode is a server process to compare with: "hops", "hops-wire",
// "jetstream" or "jetstream-sync". It listens on a free port of 127.0.0.1, keeps its files in
// dir, says on out that it is ready, and runs until ctx ends.
func RunNode(ctx context.Context, kind, dir string, out io.Writer) error {
	opts := &server.Options{
		ServerName: "fila-bench", Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true,
		MaxPending: nodeMaxPending,
	}
	switch system(kind) {
	case sysHops, sysHopsWire:
		opts.NoSublistCache = true // as fila's; JetStream gains nothing from it
	case sysJS, sysJSSynced:
		opts.JetStream, opts.StoreDir, opts.SyncAlways = true, dir, system(kind) == sysJSSynced
		opts.JetStreamMaxStore = 1 << 40 // the disk is the limit
	default:
		return fmt.Errorf("node %q is not known: allowed is %s, %s, %s or %s", kind, sysHops, sysHopsWire, sysJS, sysJSSynced)
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	srv.Start()
	defer func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	}()
	if !srv.ReadyForConnections(time.Minute) {
		return errors.New("the NATS server does not get ready")
	}
	if opts.JetStream && !srv.JetStreamEnabled() {
		return fmt.Errorf("JetStream does not start in %s", dir)
	}
	if system(kind).isHops() {
		middle, err := startMiddle(srv, system(kind) == sysHopsWire)
		if err != nil {
			return err
		}
		defer middle.Close()
	}
	if _, err := fmt.Fprintf(out, "node is ready: nats=%s\n", srv.ClientURL()); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// startMiddle does what fila cannot leave out, and no more: it confirms, sends
// on, and confirms acks, over the same kind of connection to a server in the
// same process. With likeFila, what it sends on looks like a delivery of fila.
func startMiddle(srv *server.Server, likeFila bool) (*nats.Conn, error) {
	nc, err := nats.Connect("", nats.InProcessServer(srv), nats.Name("middle"))
	if err != nil {
		return nil, err
	}
	confirmation := []byte(`{"id":"00000000-0000-7000-8000-000000000000","queue":"bench"}`) // as long as fila's
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
		sub, err := nc.Subscribe(subject, work)
		if err == nil {
			err = sub.SetPendingLimits(-1, -1)
		}
		if err != nil {
			nc.Close()
			return nil, err
		}
	}
	if err := nc.Flush(); err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nil
}

// imitation sends messages on with what fila's protocol adds to a delivery, and
// none of the work behind it: headers of the same length, and an ack subject of
// its own for each message.
type imitation struct {
	nc     *nats.Conn
	header nats.Header // used again and again; the client library copies it
	n      uint64
}

// deliveryHeaders are as long as those of fila.
func deliveryHeaders() nats.Header {
	const at = "2026-01-02T03:04:05.678901234Z"
	return nats.Header{
		wire.HeaderID: {"00000000-0000-7000-8000-000000000000"}, wire.HeaderQueue: {"bench-0123456789"}, wire.HeaderKey: {"1"},
		wire.HeaderAttempt: {"1"}, wire.HeaderEnqueuedAt: {at}, wire.HeaderDeadline: {at},
	}
}

// sendOn runs on one goroutine.
func (i *imitation) sendOn(m *nats.Msg) {
	i.n++
	maps.Copy(i.header, m.Header)
	_ = i.nc.PublishMsg(&nats.Msg{Subject: hopsDeliver, Reply: i.ackSubject(), Header: i.header, Data: m.Data})
}

// ackSubject is one that was not used before. A token has 43 characters.
func (i *imitation) ackSubject() string {
	const head, tail = hopsAck + ".", ".bench-0123456789"
	subject := []byte(head + "0000000000000000000000000000000000000000000" + tail)
	at := len(subject) - len(tail)
	for n := i.n; n > 0; n /= 10 {
		at--
		subject[at] = byte('0' + n%10)
	}
	return string(subject)
}
