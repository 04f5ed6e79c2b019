package system

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// Access says where a server is and how to log in. Load processes get it on standard input,
// never on a command line.
type Access struct {
	URL         string `json:"url"`
	Creds       string `json:"creds,omitempty"` // file
	NKey        string `json:"nkey,omitempty"`  // file with the seed
	User        string `json:"user,omitempty"`
	Password    string `json:"password,omitempty"`
	Token       string `json:"token,omitempty"`
	CA          string `json:"ca,omitempty"` // PEM files
	Cert        string `json:"cert,omitempty"`
	Key         string `json:"key,omitempty"`
	InboxPrefix string `json:"inbox_prefix,omitempty"`
	TLSFirst    bool   `json:"tls_first,omitempty"`
	Prefix      string `json:"prefix,omitempty"` // prefix of fila's subjects
}

// connect opens a connection that does not reconnect: a measurement that loses its server has
// failed.
func (a *Access) connect(name string) (*nats.Conn, error) {
	opts := []nats.Option{nats.Name("fila bench " + name), nats.NoReconnect(), nats.Timeout(10 * time.Second)}
	given := func(value string, option nats.Option) {
		if value != "" {
			opts = append(opts, option)
		}
	}
	given(a.Creds, nats.UserCredentials(a.Creds))
	given(a.User, nats.UserInfo(a.User, a.Password))
	given(a.Token, nats.Token(a.Token))
	given(a.CA, nats.RootCAs(a.CA))
	given(a.Cert, nats.ClientCert(a.Cert, a.Key))
	given(a.InboxPrefix, nats.CustomInboxPrefix(a.InboxPrefix))
	if a.NKey != "" {
		seed, err := nats.NkeyOptionFromSeed(a.NKey)
		if err != nil {
			return nil, fmt.Errorf("nkey %s: %w", a.NKey, err)
		}
		opts = append(opts, seed)
	}
	if a.TLSFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	nc, err := nats.Connect(a.URL, opts...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return nc, nil
}

// subscribe subscribes without a limit of pending messages. An empty group gets all messages.
func subscribe(nc *nats.Conn, subject, group string, handle nats.MsgHandler) (*nats.Subscription, error) {
	sub, err := nc.QueueSubscribe(subject, group, handle)
	if err != nil {
		return nil, err
	}
	return sub, sub.SetPendingLimits(-1, -1)
}

// requestTimeout bounds each request of the set-up.
const requestTimeout = 30 * time.Second

// flush waits until the server has processed everything sent on the connection.
func flush(ctx context.Context, nc *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return nc.FlushWithContext(ctx)
}
