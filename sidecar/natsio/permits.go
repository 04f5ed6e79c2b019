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

// forwardTimeout is how long a fila waits for another one that gave a permit.
const forwardTimeout = 2 * time.Second

// Permits pass on how calls went among filas that answer a common guard prefix: one is
// told, and another one gave the permit. Its connection is that of [ConnectFleet].
type Permits struct {
	Log    *slog.Logger
	Conn   *nats.Conn
	Common wire.Subjects
}

// Serve hears of calls whose permits this fila gave, and answers those that were told of
// them, which must be filas themselves.
func (p Permits) Serve(issuer uint64, done func(body []byte) ([]byte, *wire.Error)) error {
	subject := p.Common.PermitDone(issuer)
	sub, err := p.Conn.Subscribe(subject, func(m *nats.Msg) {
		if !strings.HasPrefix(m.Reply, FleetInbox+".") || !literal(m.Reply) {
			return // nobody but a fila asks here
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

// Forward tells the fila that gave a permit how the call went, and returns its answer; nil:
// there is none.
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
