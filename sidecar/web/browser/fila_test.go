package browser

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/client"
	"github.com/filaq/fila/sidecar"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// fila is a whole sidecar in this process, with a NATS server and a disk.
type fila struct {
	t    *testing.T
	base string // of the pages
	c    *client.Client
}

// run starts a fila and opens a tab for its pages. The requests of the tab count in asked.
func run(t *testing.T, change ...func(*config.Config)) (*fila, *tab) {
	t.Helper()
	needBrowser(t)
	f := start(t, change...)
	b := open(t, f.base)
	b.mu.counts = true
	return f, b
}

// start starts a fila that stops at the end of the test.
func start(t *testing.T, change ...func(*config.Config)) *fila {
	t.Helper()
	cfg := config.Default()
	cfg.DataDir, cfg.HTTP.Addr, cfg.NATS.Embedded.Port = t.TempDir(), "127.0.0.1:0", -1
	cfg.DrainTimeoutMs = 100
	cfg.Throttles = []config.ThrottleTable{{Key: "vendor:stripe", Rate: wire.Rate("2"), Burst: 2}}
	for _, one := range change {
		one(&cfg)
	}
	s, err := sidecar.New(cfg, slog.New(slog.DiscardHandler), "1.0.0")
	require.NoError(t, err)
	ctx, end := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx) }()
	t.Cleanup(func() {
		end()
		require.NoError(t, <-over)
	})
	select {
	case <-s.Ready():
	case err := <-over:
		over <- err
		require.NoError(t, err, "fila does not start")
	}
	url := cmp.Or(cfg.NATS.URL, s.ClientURL())
	nc, err := nats.Connect(url, nats.Timeout(patience))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	c, err := client.New(nc, client.WithTimeout(patience))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return &fila{t: t, base: "http://" + s.HTTPAddr(), c: c}
}

// queue creates a queue with the header Tenant as its fairness key, Gate as a throttle key and
// Circuit as its circuit.
func (f *fila) queue(name string, change ...func(*client.QueueSettings)) {
	f.t.Helper()
	s := client.QueueSettings{FairnessHeader: "Tenant", ThrottleHeaders: []string{"Gate"}, CircuitHeader: "Circuit"}
	for _, one := range change {
		one(&s)
	}
	_, err := f.c.QueueCreate(f.t.Context(), name, s)
	require.NoError(f.t, err)
}

// publish enqueues a message and returns its id.
func (f *fila) publish(queue, payload string, opts ...client.PublishOption) string {
	f.t.Helper()
	r, err := f.c.Publish(f.t.Context(), queue, []byte(payload), opts...)
	require.NoError(f.t, err)
	return r.ID
}

func tenant(name string) client.PublishOption { return client.Header("Tenant", name) }

// consume runs a consumer until the end of the test.
func (f *fila) consume(queue, name string, handler client.Handler, opts ...client.ConsumeOption) {
	f.t.Helper()
	k, err := f.c.Consume(f.t.Context(), queue, handler, append([]client.ConsumeOption{client.ConsumerName(name)}, opts...)...)
	require.NoError(f.t, err)
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = k.Stop(ctx) // fila may stop first
	})
}

// load keeps a queue busy until the test ends: one of two tenants sends most messages, and some
// fail.
func (f *fila) load(queue string) {
	f.t.Helper()
	f.queue(queue)
	n := 0
	f.consume(queue, "worker", func(_ context.Context, m *client.Message) error {
		if n++; n%50 == 0 {
			return m.Nack(client.NackOptions{Error: "connection refused", Code: "503", Delay: time.Second})
		}
		return nil
	})
	ctx, end := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		next := time.NewTicker(25 * time.Millisecond)
		defer next.Stop()
		for i := 0; ; i++ {
			name := "acme"
			if i%10 == 0 {
				name = "globex"
			}
			if _, err := f.c.Publish(ctx, queue, []byte(strconv.Itoa(i)), tenant(name)); errors.Is(err, context.Canceled) {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-next.C:
			}
		}
	})
	f.t.Cleanup(func() {
		end()
		done.Wait()
	})
}

// kill publishes messages that become dead letters at their first attempt.
func (f *fila) kill(queue string, n int, name, code, text string) {
	f.t.Helper()
	for i := range n {
		f.publish(queue, fmt.Sprintf(`{"order": %d}`, i), tenant(name), client.Header("Die-Code", code), client.Header("Die-Of", text))
	}
}

// nackByHeader nacks messages with a Die-Of header, and acks the others.
func nackByHeader(_ context.Context, m *client.Message) error {
	if m.Header.Get("Die-Of") != "" {
		return m.Nack(client.NackOptions{Error: m.Header.Get("Die-Of"), Code: m.Header.Get("Die-Code")})
	}
	return nil
}

// noRetries sets max_deliveries to 1.
func noRetries(s *client.QueueSettings) { s.MaxDeliveries = new(int64(1)) }

// inspected waits until the state of a queue satisfies ok.
func (f *fila) inspected(queue string, ok func(api.QueueInfo) bool) {
	f.t.Helper()
	var last api.QueueInfo
	var err error
	require.True(f.t, wait(f.t.Context(), func() bool {
		last, err = f.c.QueueInspect(f.t.Context(), queue, 0)
		return err == nil && ok(last)
	}), "%+v %v", last, err)
}

// depth waits until n messages wait in a queue.
func (f *fila) depth(queue string, n int64) {
	f.t.Helper()
	f.inspected(queue, func(q api.QueueInfo) bool { return q.Pending+q.Delayed == n })
}
