package natsio

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/wire"
)

// forwardTimeout bounds the wait for the fila that issued a permit.
const forwardTimeout = 2 * time.Second

// Permits forwards the outcomes of guard calls among filas that serve a common guard prefix, to
// the fila that issued the permit.
type Permits struct {
	// Conn is a connection of [ConnectFleet].
	Log    *slog.Logger
	Conn   *nats.Conn
	Common wire.Subjects
}

// Serve receives the outcomes of calls whose permits this fila issued. done handles them.
func (p Permits) Serve(issuer uint64, done func(body []byte) ([]byte, *wire.Error)) error {
	subject := p.Common.PermitDone(issuer)
	sub, err := p.Conn.Subscribe(subject, func(m *nats.Msg) {
		if !strings.HasPrefix(m.Reply, FleetInbox+".") || !literal(m.Reply) {
			return // only filas ask here
		}
		reply := &nats.Msg{Subject: m.Reply}
		var werr *wire.Error
		if reply.Data, werr = done(m.Data); werr != nil {
			reply.Data, reply.Header = werr.Body(), werr.Headers()
		}
		if err := p.Conn.PublishMsg(reply); err != nil {
			p.Log.Debug("a reply could not be published", "subject", m.Reply, "error", err)
		}
	})
	if err == nil {
		err = sub.SetPendingLimits(-1, -1)
	}
	if err != nil {
		return fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	return flush(context.Background(), p.Conn)
}

// Forward sends the outcome of a call to the fila that issued the permit, and returns its answer.
func (p Permits) Forward(issuer uint64, body []byte) ([]byte, *wire.Error, error) {
	ctx, cancel := context.WithTimeout(context.Background(), forwardTimeout)
	defer cancel()
	m, err := p.Conn.RequestWithContext(ctx, p.Common.PermitDone(issuer), body)
	if err != nil {
		p.Log.Debug("the fila that gave a permit does not answer", "error", err)
		return nil, nil, err
	}
	if werr := wire.ParseError(m.Header, m.Data); werr != nil {
		return nil, werr, nil
	}
	return m.Data, nil, nil
}
