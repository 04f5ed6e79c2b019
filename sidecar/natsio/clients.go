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

// CutClient describes a client that the embedded server has disconnected.
type CutClient struct {
	Reason  string // one of the constants Cut…
	User    string // empty if there is none
	Client  string // name of the connection
	Address string
}

// Reasons why the embedded server disconnects a client.
const (
	CutPending     = "pending"     // it has left nats.embedded.max_pending bytes unread
	CutDeadline    = "deadline"    // it has read nothing for nats.embedded.write_deadline_ms
	CutConnections = "connections" // its user has nats.embedded.max_connections_per_user others
)

// checkInterval is how often connections are checked.
const checkInterval = time.Second

// watchClients disconnects the newest connections of users who have too many, and reports each
// client that the server has disconnected, until ctx ends.
func (e *Embedded) watchClients(ctx context.Context, most int) {
	w := clientWatch{srv: e.Server, most: most, since: time.Now(), cut: e.cut}
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.boundUsers()
			w.reportSlow()
		}
	}
}

// OnCut sets the function that is called for each disconnected client from now on, by one
// goroutine. It is called once.
func (e *Embedded) OnCut(call func(CutClient)) { e.onCut.Store(&call) }

func (e *Embedded) cut(c CutClient) {
	e.log.Warn("the embedded NATS server disconnected a client", "reason", c.Reason, "user", c.User, "client", c.Client, "address", c.Address)
	if call := e.onCut.Load(); call != nil {
		(*call)(c)
	}
}

// clientWatch watches the connections of a server.
type clientWatch struct {
	srv  *server.Server
	most int // connections of a user
	cut  func(CutClient)

	slow  uint64    // slow clients that the server had counted at the last check
	again bool      // some of them may not have been listed yet
	since time.Time // closed connections until then have been reported
}

// boundUsers closes the connections of users beyond their limit. The server itself has limits
// per account only.
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
	for _, c := range all.Conns { // oldest first
		if c.Port == 0 {
			continue // a connection of this process
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

// reportSlow reports clients that the server has disconnected since the last check. The server
// counts them before it lists them, so each increase is checked twice.
func (w *clientWatch) reportSlow() {
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
