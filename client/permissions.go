package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/nats-io/nats.go"
)

// PermissionError says that NATS permissions do not allow a publish or subscribe of this
// client. Nothing was done, and retrying helps only after the permissions have changed.
type PermissionError struct {
	Subscribe bool   // false: publish
	Subject   string // that is not allowed
	Err       error  // of the NATS library, [nats.ErrPermissionViolation] in its chain
}

// Error says what is not allowed.
func (e *PermissionError) Error() string {
	if e.Subscribe {
		return fmt.Sprintf("NATS permissions do not allow to subscribe to %s, so no request was sent", e.Subject)
	}
	return fmt.Sprintf("NATS permissions do not allow to publish to %s, so nothing was done", e.Subject)
}

// Unwrap returns the error of the NATS library.
func (e *PermissionError) Unwrap() error { return e.Err }

var violation = regexp.MustCompile(`(Publish|Subscription) to ("(?:[^"\\]|\\.)*")`)

// permissionError parses the sentence in which the server reports a violation.
func permissionError(err error) *PermissionError {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	found := violation.FindStringSubmatch(err.Error())
	if found == nil {
		return nil
	}
	subject, unquoteErr := strconv.Unquote(found[2])
	if unquoteErr != nil {
		return nil
	}
	return &PermissionError{Subscribe: found[1] == "Subscription", Subject: subject, Err: err}
}

// refusals distributes the permission errors of a connection. The server names only the
// subject, not the request.
type refusals struct {
	inbox     string      // the prefix of reply subjects
	inboxOpen atomic.Bool // the server has accepted a subscription to replies

	mu struct {
		sync.Mutex
		lastID    uint64
		listeners map[uint64]func(*PermissionError)
	}
}

// watched has the refusals of each connection with a client. All clients of a connection
// share its error handler.
var watched struct {
	sync.Mutex
	byConn map[weak.Pointer[nats.Conn]]*refusals
}

// refusalsOf returns the refusals of a connection. It wraps the connection's error handler.
func refusalsOf(nc *nats.Conn) *refusals {
	key := weak.Make(nc)
	watched.Lock()
	defer watched.Unlock()
	if r := watched.byConn[key]; r != nil {
		return r
	}
	inbox := nc.Opts.InboxPrefix
	if inbox == "" {
		inbox = strings.TrimSuffix(nats.InboxPrefix, ".")
	}
	r := &refusals{inbox: inbox + "."}
	r.mu.listeners = map[uint64]func(*PermissionError){}
	if watched.byConn == nil {
		watched.byConn = map[weak.Pointer[nats.Conn]]*refusals{}
	}
	watched.byConn[key] = r
	runtime.AddCleanup(nc, forget, key)
	before := nc.ErrorHandler()
	nc.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		r.notify(err)
		if before != nil {
			before(nc, sub, err)
		}
	})
	return r
}

func forget(key weak.Pointer[nats.Conn]) {
	watched.Lock()
	defer watched.Unlock()
	delete(watched.byConn, key)
}

// notify calls the listeners. It runs on the connection's goroutine for callbacks.
func (r *refusals) notify(err error) {
	denied := permissionError(err)
	if denied == nil {
		return
	}
	if denied.Subscribe && strings.HasPrefix(denied.Subject, r.inbox) {
		r.inboxOpen.Store(false)
	}
	r.mu.Lock()
	listeners := slices.Collect(maps.Values(r.mu.listeners))
	r.mu.Unlock()
	for _, listener := range listeners {
		listener(denied)
	}
}

// listen calls fn with every refusal until stop, and possibly once more. fn must not block.
func (r *refusals) listen(fn func(*PermissionError)) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.lastID++
	id := r.mu.lastID
	r.mu.listeners[id] = fn
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.mu.listeners, id)
	}
}

// listenPublish returns a context that ends, with the refusal as its cause, when the server
// refuses a publish to a subject.
func (r *refusals) listenPublish(ctx context.Context, subject string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := r.listen(func(denied *PermissionError) {
		if !denied.Subscribe && denied.Subject == subject {
			cancel(denied)
		}
	})
	return ctx, func() { stop(); cancel(nil) }
}

// becauseOf returns the refusal that ended a context, or err.
func becauseOf(ctx context.Context, err error) error {
	if denied, ok := errors.AsType[*PermissionError](context.Cause(ctx)); ok && err != nil {
		return denied
	}
	return err
}

// openInbox checks that the server accepts subscriptions to replies, because a request would
// be carried out even if its reply cannot arrive. It checks once, and again after a refusal.
func (c *Client) openInbox(ctx context.Context) error {
	r := c.refusals
	if r.inboxOpen.Load() || !c.nc.IsConnected() {
		return nil
	}
	before := c.nc.LastError()
	sub, err := c.nc.Subscribe(c.nc.NewInbox()+".*", func(*nats.Msg) {})
	if err != nil {
		return nil // the request will fail with it
	}
	err = c.admitted(ctx, before, sub)
	_ = unsubscribe(sub) // an error means that it has ended
	if denied, ok := errors.AsType[*PermissionError](err); ok {
		return denied
	}
	r.inboxOpen.Store(err == nil)
	return nil
}

// admitted waits until the server has processed the subscriptions, and returns the refusal of
// one of them. before is the connection's last error before they were made.
func (c *Client) admitted(ctx context.Context, before error, subs ...*nats.Subscription) error {
	if err := flush(ctx, c.nc); err != nil {
		return err
	}
	last := c.nc.LastError()
	denied := permissionError(last)
	if denied == nil || !denied.Subscribe || errors.Is(last, before) {
		return nil
	}
	for _, sub := range subs {
		if sub.Subject == denied.Subject {
			return denied
		}
	}
	return nil
}
