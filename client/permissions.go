package client

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/nats-io/nats.go"
)

// PermissionError says that the NATS server does not let this client publish or
// subscribe where it has to. The server tells so at once, and nothing was done:
// trying again helps only when somebody has changed the permissions.
type PermissionError struct {
	Subscribe bool   // otherwise it was to publish
	Subject   string // where
	Err       error  // of the NATS library, [nats.ErrPermissionViolation] in its chain
}

// Error says what is not allowed.
func (e *PermissionError) Error() string {
	if e.Subscribe {
		return fmt.Sprintf("NATS permissions do not allow to subscribe to %s, so nothing was asked", e.Subject)
	}
	return fmt.Sprintf("NATS permissions do not allow to publish to %s, so nothing was done", e.Subject)
}

// Unwrap returns the error of the NATS library.
func (e *PermissionError) Unwrap() error { return e.Err }

var violation = regexp.MustCompile(`(Publish|Subscription) to ("(?:[^"\\]|\\.)*")`)

// permissionError reads the only form in which the server tells: a sentence.
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

// refusals passes on what the server refuses on a connection. The server does not
// say which request it means, only the subject.
type refusals struct {
	inbox     string      // what reply subjects begin with
	inboxOpen atomic.Bool // the server has taken a subscription to replies

	mu struct {
		sync.Mutex
		lastID    uint64
		listeners map[uint64]func(*PermissionError)
	}
}

// watched has the refusals of each connection that a client was made for. The
// connection's error handler is one for all of them.
var watched struct {
	sync.Mutex
	byConn map[weak.Pointer[nats.Conn]]*refusals
}

// refusalsOf returns the refusals of a connection. It is told of them by the
// connection's error handler, and passes everything on to the one of before.
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
		r.tell(err)
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

// tell runs on the connection's goroutine for callbacks.
func (r *refusals) tell(err error) {
	denied := permissionError(err)
	if denied == nil {
		return
	}
	if denied.Subscribe && strings.HasPrefix(denied.Subject, r.inbox) {
		r.inboxOpen.Store(false)
	}
	r.mu.Lock()
	listeners := make([]func(*PermissionError), 0, len(r.mu.listeners))
	for _, listener := range r.mu.listeners {
		listeners = append(listeners, listener)
	}
	r.mu.Unlock()
	for _, listener := range listeners {
		listener(denied)
	}
}

// listen has fn called with every refusal until stop. It must not block, and may
// be called once more after stop.
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

// listenPublish returns a context that ends, with the refusal as its cause, when
// the server refuses what is published to a subject.
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
	var denied *PermissionError
	if err != nil && errors.As(context.Cause(ctx), &denied) {
		return denied
	}
	return err
}

// openInbox sees to it that replies can arrive, before anything is sent that would
// be done without its reply. It asks the server once, and again after a refusal.
func (c *Client) openInbox(ctx context.Context) error {
	r := c.refusals
	if r.inboxOpen.Load() || !c.nc.IsConnected() {
		return nil
	}
	before := c.nc.LastError()
	sub, err := c.nc.Subscribe(c.nc.NewInbox()+".*", func(*nats.Msg) {})
	if err != nil {
		return nil // the request itself will say it
	}
	err = c.admitted(ctx, before, sub)
	_ = unsubscribe(sub) // what fails to end has ended
	if denied := (*PermissionError)(nil); errors.As(err, &denied) {
		return denied
	}
	r.inboxOpen.Store(err == nil)
	return nil
}

// admitted waits until the server has seen what was sent and returns the refusal of
// one of the subscriptions made since before was the connection's last error. The
// library keeps only the latest.
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
