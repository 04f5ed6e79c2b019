package natsio

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// CutClient is a client whose connection the embedded server has closed.
type CutClient struct {
	Reason  string // one of the constants Cut…
	User    string // empty: it has none
	Client  string // name of the connection, as the client gave it
	Address string
}

// Why the embedded server closes the connection of a client.
const (
	CutPending     = "pending"     // it has left nats.embedded.max_pending bytes unread
	CutDeadline    = "deadline"    // it has read nothing for nats.embedded.write_deadline_ms
	CutConnections = "connections" // its user has nats.embedded.max_connections_per_user others
)

// lookEvery is how often a clientWatch looks.
const lookEvery = time.Second

// watchClients closes the newest connections of users who have too many, and tells of each
// client that the server has cut off, until ctx ends.
func (e *Embedded) watchClients(ctx context.Context, most int) {
	w := clientWatch{srv: e.Server, most: most, since: time.Now(), cut: e.cut}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.boundUsers()
			w.tellSlow()
		}
	}
}

// OnCut names, once, what is called for each client that the server cuts off from then
// on, from one goroutine.
func (e *Embedded) OnCut(call func(CutClient)) { e.onCut.Store(&call) }

func (e *Embedded) cut(c CutClient) {
	e.log.Warn("the embedded NATS server has cut off a client", "reason", c.Reason, "user", c.User, "client", c.Client, "address", c.Address)
	if call := e.onCut.Load(); call != nil {
		(*call)(c)
	}
}

// clientWatch looks at the connections of a server.
type clientWatch struct {
	srv  *server.Server
	most int // connections of a user
	cut  func(CutClient)

	slow  uint64    // clients that the server had found slow at the last look
	again bool      // some of those may not have been listed then
	since time.Time // those closed until then have been told
}

// boundUsers closes the connections that users have beyond their limit. The server has no
// such limit itself: those of its accounts are in the users file.
func (w *clientWatch) boundUsers() {
	if w.srv.NumClients() <= w.most {
		return
	}
	all, err := w.srv.Connz(&server.ConnzOptions{Username: true, Limit: 2 * w.srv.NumClients(), Sort: server.ByCid})
	if err != nil {
		return // the server stops
	}
	type user struct{ account, name string }
	has := make(map[user]int)
	for _, c := range all.Conns { // the oldest first
		if c.Port == 0 {
			continue // of this process
		}
		of := user{c.Account, c.AuthorizedUser}
		if has[of]++; has[of] <= w.most {
			continue
		}
		if w.srv.DisconnectClientByID(c.Cid) == nil {
			w.cut(cutClient(CutConnections, c))
		}
	}
}

// tellSlow tells of clients that the server has cut off since the last look. It counts
// them before it lists them, so whatever is counted is looked for twice.
func (w *clientWatch) tellSlow() {
	n := w.srv.NumSlowConsumersClients()
	more := n != w.slow
	due := more || w.again
	w.slow, w.again = n, more
	if !due {
		return
	}
	all, err := w.srv.Connz(&server.ConnzOptions{Username: true, State: server.ConnClosed, Limit: server.DEFAULT_MAX_CLOSED_CLIENTS, Sort: server.ByStop})
	if err != nil {
		return
	}
	slices.SortFunc(all.Conns, func(a, b *server.ConnInfo) int { return cmp.Compare(a.Stop.UnixNano(), b.Stop.UnixNano()) })
	for _, c := range all.Conns {
		if !c.Stop.After(w.since) {
			continue
		}
		switch {
		case c.Reason == server.SlowConsumerPendingBytes.String():
			w.cut(cutClient(CutPending, c))
		case c.Reason == server.SlowConsumerWriteDeadline.String():
			w.cut(cutClient(CutDeadline, c))
		default:
			continue
		}
		w.since = *c.Stop
	}
}

func cutClient(reason string, c *server.ConnInfo) CutClient {
	return CutClient{Reason: reason, User: c.AuthorizedUser, Client: strings.ToValidUTF8(c.Name, "?"), Address: net.JoinHostPort(c.IP, strconv.Itoa(c.Port))}
}
