package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Transport returns a RoundTripper that guards each request to base; nil is
// [http.DefaultTransport]. The keys of a request are "host:" and its host, with the
// port if the URL has one, unless keys says otherwise. A request that is refused is
// not sent, and its error wraps a [*RefusedError].
//
// A response of 500 and above, and 429, is an error with its status as the code, and with its
// Retry-After; the caller still gets the response. A call ends when the body of its response
// has been read to its end or closed, or when the server switches to another protocol. The
// permit of a call ends after 30 s even if the call continues.
func (g *Guard) Transport(base http.RoundTripper, keys func(*http.Request) []string) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	if keys == nil {
		keys = func(r *http.Request) []string { return []string{"host:" + r.URL.Host} }
	}
	return &transport{g, base, keys}
}

type transport struct {
	g    *Guard
	base http.RoundTripper
	keys func(*http.Request) []string
}

// RoundTrip sends a request if it is allowed.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	permit, err := t.g.Check(r.Context(), GuardCall{Keys: t.keys(r)})
	switch {
	case err != nil && t.g.open && (errors.Is(err, ErrNoFila) || errors.Is(err, ErrNoReply)):
		return t.base.RoundTrip(r)
	case err != nil:
		if r.Body != nil {
			_ = r.Body.Close() // as a RoundTripper must; what it was for does not happen
		}
		return nil, err
	}
	resp, err := t.base.RoundTrip(r)
	if err != nil {
		permit.report(r.Context(), err, AckOptions{})
		return nil, err
	}
	if resp.Body == nil || resp.Body == http.NoBody || resp.StatusCode == http.StatusSwitchingProtocols {
		permit.report(r.Context(), statusOf(resp), AckOptions{})
		return resp, nil
	}
	resp.Body = &guardedBody{ReadCloser: resp.Body, permit: permit, ctx: r.Context(), status: statusOf(resp)}
	return resp, nil
}

// guardedBody reports the outcome of a call when its response ends.
type guardedBody struct {
	io.ReadCloser
	permit *Permit
	ctx    context.Context //nolint:containedctx // of the request: the body is read after RoundTrip
	status error
	once   sync.Once
}

func (b *guardedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		b.over(nil)
	default:
		b.over(err)
	}
	return n, err
}

func (b *guardedBody) Close() error {
	err := b.ReadCloser.Close()
	b.over(nil)
	return err
}

func (b *guardedBody) over(err error) {
	if b.status != nil {
		err = b.status
	}
	b.once.Do(func() { b.permit.report(b.ctx, err, AckOptions{}) })
}

// statusError is a response that is a failure of its host.
type statusError struct {
	status     int
	retryAfter time.Duration
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%d %s", e.status, http.StatusText(e.status))
}

func (e *statusError) ErrorCode() string         { return strconv.Itoa(e.status) }
func (e *statusError) RetryAfter() time.Duration { return e.retryAfter }

// statusOf returns nil unless the response is a failure.
func statusOf(r *http.Response) error {
	if r.StatusCode < 500 && r.StatusCode != http.StatusTooManyRequests {
		return nil
	}
	e := &statusError{status: r.StatusCode}
	after := r.Header.Get("Retry-After")
	if n, err := strconv.Atoi(after); err == nil && n > 0 && n <= maxRetryAfter {
		e.retryAfter = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(after); err == nil {
		e.retryAfter = min(max(time.Until(at), 0), maxRetryAfter*time.Second)
	}
	return e
}

// maxRetryAfter is the longest accepted Retry-After (s).
const maxRetryAfter = 24 * 3600
