package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// newGuarded is a client of a fila of its own with this configuration.
func newGuarded(t *testing.T, config string) *Client {
	t.Helper()
	p := startFila(t, "", config)
	nc, err := nats.Connect(p.url)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	c, err := New(nc)
	require.NoError(t, err)
	return c
}

const guardConfig = `
[circuit_defaults]
threshold = 2
[[throttle]]
key = "one"
concurrency = 1
[[throttle]]
key = "tenant:x"
limit = 1
window_ms = 60000
[[throttle]]
key = "tokens"
rate = "1/1000000"
burst = 1000
[[throttle]]
key = "learns"
rate = 0.001
burst = 1000
adapt = { signal = "overload", min = 0.001 }
[[error_rule]]
name = "ours"
code = "400"
description = "the request is wrong"
severity = "low"
retry = false
message_fault = true
`

type codeError string

func (e codeError) Error() string     { return "code " + string(e) }
func (e codeError) ErrorCode() string { return string(e) }

func TestGuard(t *testing.T) {
	c := newGuarded(t, guardConfig)
	ctx := t.Context()
	g := c.Guard(GuardCaller("test"))

	t.Run("a call that is allowed", func(t *testing.T) {
		ran := false
		require.NoError(t, g.Do(ctx, []string{"a key", "tenant:x"}, func(ctx context.Context) error {
			deadline, ok := ctx.Deadline()
			require.True(t, ok)
			require.LessOrEqual(t, time.Until(deadline), 30*time.Second)
			ran = true
			return nil
		}))
		require.True(t, ran)
		var refused *RefusedError
		err := g.Do(ctx, []string{"a key", "tenant:x"}, func(context.Context) error { panic("it is refused") })
		require.ErrorAs(t, err, &refused)
		require.ErrorIs(t, err, ErrRefused)
		require.Equal(t, "window", refused.Gate)
		require.Equal(t, "tenant:x", refused.Key)
		require.Positive(t, refused.RetryAfter())
		require.Equal(t, int64(1), refused.Limit.Limit)
	})
	t.Run("a call that fails", func(t *testing.T) {
		var failed *FailedError
		cause := codeError("400")
		err := g.Do(ctx, []string{"v"}, func(context.Context) error { return cause })
		require.ErrorAs(t, err, &failed)
		require.ErrorIs(t, err, cause)
		require.Equal(t, "ours", failed.Verdict.Rule)
		require.Equal(t, "the request is wrong", failed.Verdict.Description)
		require.False(t, failed.Verdict.Retry)
		for range 2 {
			_ = g.Do(ctx, []string{"v"}, func(context.Context) error { return errors.New("down") })
		}
		require.ErrorIs(t, g.Do(ctx, []string{"v"}, func(context.Context) error { return nil }), ErrRefused, "the circuit is open")
		verdict, err := g.Judge(ctx, GuardCall{Keys: []string{"v"}}, codeError("400"))
		require.NoError(t, err)
		require.Equal(t, "ours", verdict.Rule)
		status, err := g.State(ctx, "v")
		require.NoError(t, err)
		require.Equal(t, "open", status.Circuit.State)
	})
	t.Run("what does not return gives back all the same", func(t *testing.T) {
		require.Panics(t, func() { _ = g.Do(ctx, []string{"one"}, func(context.Context) error { panic("x") }) })
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = g.Do(ctx, []string{"w", "one"}, func(context.Context) error { runtime.Goexit(); return nil })
		}()
		<-done
		require.NoError(t, g.Do(ctx, []string{"x", "one"}, func(context.Context) error { return nil }))
	})
	t.Run("the actual cost", func(t *testing.T) {
		left := func() int64 {
			status, err := g.State(ctx, "tokens")
			require.NoError(t, err)
			return status.Limits[0].Remaining
		}
		call := GuardCall{Keys: []string{"tokens"}, Cost: 100}
		require.NoError(t, g.DoCall(ctx, call, func(ctx context.Context) error {
			ReportCost(ctx, 1)
			ReportCost(ctx, 300)
			ReportCost(ctx, -1)
			return nil
		}))
		require.Equal(t, int64(700), left())
		require.Error(t, g.DoCall(ctx, call, func(ctx context.Context) error { ReportCost(ctx, 20); return errors.New("down") }))
		require.Equal(t, int64(680), left())
		permit, err := g.Check(ctx, call)
		require.NoError(t, err)
		_, err = permit.DoneCost(ctx, nil, -1)
		require.ErrorContains(t, err, "cost is -1")
		_, err = permit.DoneCost(ctx, nil, 80)
		require.NoError(t, err)
		require.Equal(t, int64(600), left())
		ReportCost(ctx, 1) // of no call
	})
	t.Run("what the destination still admits", func(t *testing.T) {
		left := func() int64 {
			status, err := g.State(ctx, "learns")
			require.NoError(t, err)
			return status.Limits[0].Remaining
		}
		call := GuardCall{Keys: []string{"learns"}, Cost: 100}
		require.NoError(t, g.DoCall(ctx, call, func(ctx context.Context) error {
			ReportFeedback(ctx, Feedback{Remaining: 700, Reset: time.Second})
			ReportFeedback(ctx, Feedback{Remaining: -1})
			return nil
		}))
		require.Equal(t, int64(700), left())
		permit, err := g.Check(ctx, call)
		require.NoError(t, err)
		_, err = permit.DoneWith(ctx, nil, AckOptions{Feedback: &Feedback{Remaining: -1}})
		require.ErrorContains(t, err, "remaining is -1")
		_, err = permit.DoneWith(ctx, nil, AckOptions{Cost: new(1.0), Feedback: &Feedback{Remaining: 300}})
		require.NoError(t, err)
		require.Equal(t, int64(300), left())
	})
	t.Run("waiting", func(t *testing.T) {
		held, err := g.Check(ctx, GuardCall{Keys: []string{"y", "one"}})
		require.NoError(t, err)
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		patient := c.Guard(GuardWait())
		err = patient.Do(short, []string{"y", "one"}, nil)
		require.ErrorIs(t, err, ErrRefused)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		go func() { _, _ = held.Done(ctx, nil) }()
		require.NoError(t, patient.Do(ctx, []string{"y", "one"}, func(context.Context) error { return nil }))
	})
	t.Run("nobody there", func(t *testing.T) {
		alone, err := New(c.Conn(), WithPrefix("nobody"))
		require.NoError(t, err)
		require.ErrorIs(t, alone.Guard().Do(ctx, []string{"v"}, func(context.Context) error { panic("nobody has allowed it") }), ErrNoFila)
		ran := false
		require.NoError(t, alone.Guard(GuardFailOpen()).Do(ctx, []string{"v"}, func(context.Context) error { ran = true; return nil }))
		require.True(t, ran)
	})
	t.Run("no key", func(t *testing.T) {
		var wrong *Error
		require.ErrorAs(t, g.Do(ctx, nil, nil), &wrong)
	})
}

// The context of a call ends no later than its permit, however long the answer took.
func TestGuardCallEndsWithItsPermit(t *testing.T) {
	c := newGuarded(t, guardConfig)
	begin := time.Now()
	err := c.Guard().DoCall(t.Context(), GuardCall{Keys: []string{"slow"}, TTL: time.Minute}, func(ctx context.Context) error {
		end, ok := ctx.Deadline()
		require.True(t, ok)
		require.False(t, end.Before(begin.Add(time.Minute)))
		status, err := c.Guard().State(t.Context(), "slow")
		require.NoError(t, err)
		require.Equal(t, 1, status.Permits)
		permit, err := c.Guard().Check(t.Context(), GuardCall{Keys: []string{"slow"}, TTL: time.Minute})
		require.NoError(t, err)
		expires, err := time.Parse(time.RFC3339Nano, permit.ExpiresAt)
		require.NoError(t, err)
		require.True(t, end.Before(expires))
		_, err = permit.Done(t.Context(), context.Canceled)
		return err
	})
	require.NoError(t, err)
	require.Equal(t, "canceled", errorCode(context.Canceled))
}

// A connection that has changed its protocol is written to as well.
func TestGuardTransportUpgrade(t *testing.T) {
	c := newGuarded(t, guardConfig)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.CopyN(conn, conn, 5)
			_ = conn.Close()
		}
	}))
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	require.NoError(t, err)
	req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}
	resp, err := c.Guard().Transport(nil, nil).RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.WriteString(resp.Body.(io.Writer), "hello")
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "hello", string(text))
}

func TestGuardTransport(t *testing.T) {
	c := newGuarded(t, guardConfig)
	var status atomic.Int64
	status.Store(200)
	var calls atomic.Int64
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		if status.Load() == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "3600")
		}
		w.WriteHeader(int(status.Load()))
		_, _ = io.WriteString(w, "hello")
	}))
	defer vendor.Close()
	guarded := &http.Client{Transport: c.Guard().Transport(nil, func(*http.Request) []string { return []string{"vendor", "one"} })}
	get := func() (*http.Response, error) { return guarded.Get(vendor.URL) }

	first, err := get()
	require.NoError(t, err)
	_, err = get()
	require.ErrorIs(t, err, ErrRefused, "the first response has not been read")
	body, err := io.ReadAll(first.Body)
	require.NoError(t, err)
	require.Equal(t, "hello", string(body))
	require.NoError(t, first.Body.Close())

	for range 2 {
		status.Store(500)
		failed, err := get()
		require.NoError(t, err, "the caller gets the response")
		require.Equal(t, 500, failed.StatusCode)
		require.NoError(t, failed.Body.Close())
	}
	before := calls.Load()
	_, err = guarded.Post(vendor.URL, "text/plain", strings.NewReader("x"))
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "circuit", refused.Gate)
	require.Equal(t, before, calls.Load(), "it is not sent")

	byHost := &http.Client{Transport: c.Guard().Transport(nil, nil)}
	status.Store(http.StatusTooManyRequests)
	limited, err := byHost.Get(vendor.URL)
	require.NoError(t, err)
	require.NoError(t, limited.Body.Close())
	_, err = byHost.Get(vendor.URL)
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "host:"+strings.TrimPrefix(vendor.URL, "http://"), refused.Key)
	require.InDelta(t, 3600, refused.RetryAfter().Seconds(), 60, "as the host has asked for")
	byHost.CloseIdleConnections()
	guarded.CloseIdleConnections()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}
