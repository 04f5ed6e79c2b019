//go:build unix

package web_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/client"
	"github.com/filaq/fila/sidecar"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
)

// These benchmarks read a fila in this process with many queues, each with some messages, and one
// queue with many fairness keys, each with a throttle key of its own that blocks its messages.
const (
	loadQueues  = 2000
	loadKeys    = 100_000
	loadViewers = 200
	loadSettled = 2 * time.Second
)

// site is a fila in this process.
type site struct {
	b    *testing.B
	base string
	addr string
	c    *client.Client
	nc   *nats.Conn
}

// newSite starts a fila with a number of queues, the first of which has a number of fairness keys.
func newSite(b *testing.B, queues, keys int) *site {
	b.Helper()
	cfg := config.Default()
	cfg.DataDir, cfg.HTTP.Addr, cfg.NATS.Embedded.Port = b.TempDir(), "127.0.0.1:0", -1
	cfg.DrainTimeoutMs = 100
	for i := range queues {
		s := wire.DefaultQueueSettings(fmt.Sprintf("q%04d", i))
		s.FairnessHeader, s.ThrottleHeaders = "Tenant", []string{"Gate"}
		cfg.Queues = append(cfg.Queues, s)
	}
	for i := range keys {
		cfg.Throttles = append(cfg.Throttles, config.ThrottleTable{Key: fmt.Sprintf("vendor-%06d", i), Rate: wire.Rate("0.001"), Burst: 1})
	}
	s, err := sidecar.New(cfg, slog.New(slog.DiscardHandler), "1.0.0")
	require.NoError(b, err)
	ctx, end := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx) }()
	b.Cleanup(func() {
		end()
		require.NoError(b, <-over)
	})
	<-s.Ready()
	nc, err := nats.Connect(s.ClientURL())
	require.NoError(b, err)
	b.Cleanup(nc.Close)
	c, err := client.New(nc, client.WithTimeout(time.Minute))
	require.NoError(b, err)
	b.Cleanup(c.Close)
	x := &site{b: b, base: "http://" + s.HTTPAddr(), addr: s.HTTPAddr(), c: c, nc: nc}
	publish := func(n int, message func(i int) (queue, tenant, gate string)) {
		var done sync.WaitGroup
		const producers = 64
		for p := range producers {
			done.Go(func() {
				for i := p; i < n; i += producers {
					queue, tenant, gate := message(i)
					opts := []client.PublishOption{client.Header("Tenant", tenant)}
					if gate != "" {
						opts = append(opts, client.Header("Gate", gate))
					}
					_, err := c.Publish(ctx, queue, []byte("hello"), opts...)
					require.NoError(b, err)
				}
			})
		}
		done.Wait()
	}
	vendor := func(i int) string { return fmt.Sprintf("vendor-%06d", i%keys) }
	publish(2*keys, func(i int) (string, string, string) { return "q0000", "tenant-" + strconv.Itoa(i%keys), vendor(i) })
	k, err := c.Consume(ctx, "q0000", func(context.Context, *client.Message) error { return nil }, client.ConsumerName("worker"))
	require.NoError(b, err)
	b.Cleanup(func() { _ = k.Stop(context.Background()) })
	publish(5*queues, func(i int) (string, string, string) {
		return fmt.Sprintf("q%04d", i%queues), "tenant-" + strconv.Itoa(i%3), []string{"", vendor(i)}[i%2]
	})
	return x
}

// work enqueues and acks perSecond messages a second until stop is called.
func (x *site) work(queue string, perSecond int) (stop func()) {
	ctx, end := context.WithCancel(context.Background())
	var done sync.WaitGroup
	k, err := x.c.Consume(ctx, queue, func(context.Context, *client.Message) error { return nil }, client.ConsumerName("worker"))
	require.NoError(x.b, err)
	done.Go(func() {
		next := time.NewTicker(10 * time.Millisecond)
		defer next.Stop()
		for i := 0; ; {
			select {
			case <-ctx.Done():
				return
			case <-next.C:
			}
			for range max(perSecond/100, 1) {
				i++
				_ = x.nc.PublishMsg(&nats.Msg{Subject: "fila.enqueue." + queue, Data: make([]byte, 1024), Header: nats.Header{"Tenant": {"tenant-" + strconv.Itoa(i%10)}}})
			}
		}
	})
	return func() {
		end()
		done.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = k.Stop(ctx)
	}
}

// processor is how long the processors have worked for this process.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// share is the part of a core that this process needs for a while.
func share(d time.Duration) float64 {
	began, before := time.Now(), processor()
	time.Sleep(d)
	return float64(processor()-before) / float64(time.Since(began))
}

// loadPages are the pages that BenchmarkPages opens.
var loadPages = []struct{ name, path string }{
	{"overview", "/"},
	{"overview-sorted", "/queues?sort=age&page=7"},
	{"overview-find", "/queues?find=q01"},
	{"queue", "/queues/q0001"},
	{"queue-100000-keys", "/queues/q0000"},
	{"tenants", "/queues/q0000/tenants"},
	{"messages", "/queues/q0000/messages"},
	{"find-queue", "/find?text=q01"},
	{"find-key", "/find?text=tenant-1"},
	{"find-rare-key", "/find?text=tenant-99999"},
	{"find-nothing", "/find?text=nobody"},
	{"find-message", "/find?text=00000000-0000-7000-8000-000000000000"},
	{"dead", "/dead"},
	{"dead-queue", "/queues/q0000/dead"},
	{"jobs", "/jobs"},
	{"schedules", "/schedules"},
	{"gates", "/gates"},
	{"throttle", "/gates/throttle?key=vendor-000001"},
	{"hooks", "/settings/hooks"},
	{"hook", "/queues/q0000/hooks"},
	{"configuration", "/settings"},
	{"events", "/activity"},
	{"scale", "/scale/q0000"}, // for autoscalers
}

// BenchmarkPages opens each page of a fila with 2,000 queues and 100,000 fairness keys, one
// request after the other, while it rests (still) and while as many lives go through one of
// its queues as can (full). p50-ms and p99-ms are how long a page takes, cpu-ms/op is what it
// needs of a processor in a fila that rests, the browser's part of a request included.
func BenchmarkPages(b *testing.B) {
	x := newSite(b, loadQueues, loadKeys)
	time.Sleep(loadSettled)
	idle := share(loadSettled)
	for _, p := range loadPages {
		b.Run("still/"+p.name, func(b *testing.B) {
			b.ReportMetric(x.open(b, p.path, idle), "cpu-ms/op")
		})
	}
	acked, stop := x.lives("q0002")
	defer stop()
	time.Sleep(loadSettled)
	for _, p := range loadPages {
		b.Run("full/"+p.name, func(b *testing.B) {
			before := acked.Load()
			x.open(b, p.path, 0)
			b.ReportMetric(float64(acked.Load()-before)/b.Elapsed().Seconds(), "lives/s")
		})
	}
}

// lives has as many lives go through a queue as can, of 256 producers with one message in
// flight each, until stop is called. acked counts them.
func (x *site) lives(queue string) (acked *atomic.Int64, stop func()) {
	acked = new(atomic.Int64)
	ctx, end := context.WithCancel(context.Background())
	k, err := x.c.Consume(ctx, queue, func(context.Context, *client.Message) error {
		acked.Add(1)
		return nil
	}, client.ConsumerName("worker"), client.MaxInFlight(1024))
	require.NoError(x.b, err)
	var done sync.WaitGroup
	for range 256 {
		done.Go(func() {
			for ctx.Err() == nil {
				_, _ = x.c.Publish(ctx, queue, make([]byte, 1024)) // what fails is no life
			}
		})
	}
	return acked, func() {
		end()
		done.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = k.Stop(ctx) // fila ends as well
	}
}

// open opens a page b.N times and returns what that needs of a processor each time, in ms,
// beside the part of a core that fila needs without.
func (x *site) open(b *testing.B, path string, idle float64) float64 {
	var took []time.Duration
	size := int64(0)
	b.ReportAllocs()
	before := processor()
	for b.Loop() {
		began := time.Now()
		r, err := http.Get(x.base + path)
		require.NoError(b, err)
		size, err = io.Copy(io.Discard, r.Body)
		require.NoError(b, err)
		_ = r.Body.Close()
		require.Equal(b, http.StatusOK, r.StatusCode)
		took = append(took, time.Since(began))
	}
	used := processor() - before - time.Duration(idle*float64(b.Elapsed()))
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1e3, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1e3, "p99-ms")
	b.ReportMetric(float64(size)/1024, "KiB")
	return float64(used.Microseconds()) / 1e3 / float64(len(took))
}

// BenchmarkViewers has 200 viewers look at a fila that is busy, and says which part of a core
// it needs with them, with 20 and without, the browsers' part of their streams included. Each
// round is several seconds: -benchtime 1x is one.
func BenchmarkViewers(b *testing.B) {
	for _, queues := range []int{20, loadQueues} {
		b.Run(fmt.Sprintf("queues=%d", queues), func(b *testing.B) {
			x := newSite(b, queues, 1000)
			b.Run("idle", func(b *testing.B) {
				sum := 0.0
				for b.Loop() {
					time.Sleep(loadSettled)
					sum += share(4 * loadSettled)
				}
				b.ReportMetric(100*sum/float64(b.N), "%core")
			})
			defer x.work("q0002", 500)()
			for _, paths := range [][]string{{"/live/"}, {"/live/", "/live/queues/q0001", "/live/queues/q0002", "/live/gates", "/live/events"}} {
				b.Run(fmt.Sprintf("pages=%d", len(paths)), func(b *testing.B) {
					var without, with, frames float64
					for b.Loop() {
						time.Sleep(loadSettled)
						without += share(2 * loadSettled)
						n, leave := x.look(loadViewers, paths)
						time.Sleep(loadSettled)
						before := n.Load()
						with += share(4 * loadSettled)
						frames += float64(n.Load()-before) / loadViewers / (4 * loadSettled.Seconds())
						leave()
					}
					b.ReportMetric(100*without/float64(b.N), "%core-without")
					b.ReportMetric(100*with/float64(b.N), "%core-with")
					b.ReportMetric(100*(with-without)/float64(b.N), "%core-viewers")
					b.ReportMetric(frames/float64(b.N), "frames/s")
				})
			}
		})
	}
}

// BenchmarkWatched has whole lives go through a queue as fast as they do, in pairs of rounds: with
// 20 viewers and a scrape of the metrics each second, and without, each first in every other
// pair. x-watched is the median of the ratios of their throughputs.
func BenchmarkWatched(b *testing.B) {
	const viewers, round = 20, 4 * time.Second
	x := newSite(b, 20, 1000)
	acked, stop := x.lives("q0003")
	defer stop()
	rate := func() float64 {
		time.Sleep(time.Second)
		began, before := time.Now(), acked.Load()
		time.Sleep(round)
		return float64(acked.Load()-before) / time.Since(began).Seconds()
	}
	watched := func() float64 {
		_, leave := x.look(viewers, []string{"/live/", "/live/queues/q0003"})
		defer leave()
		scraping, end := context.WithCancel(context.Background())
		var scraper sync.WaitGroup
		scraper.Go(func() {
			next := time.NewTicker(time.Second)
			defer next.Stop()
			for scraping.Err() == nil {
				if r, err := http.Get(x.base + "/metrics"); err == nil {
					_, _ = io.Copy(io.Discard, r.Body)
					_ = r.Body.Close()
				}
				select {
				case <-scraping.Done():
				case <-next.C:
				}
			}
		})
		defer scraper.Wait()
		defer end()
		return rate()
	}
	rate() // warm
	var ratios []float64
	var all float64
	for b.Loop() {
		var with, without float64
		if len(ratios)%2 == 0 {
			with, without = watched(), rate()
		} else {
			without, with = rate(), watched()
		}
		ratios = append(ratios, with/without)
		all += without
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "x-watched")
	b.ReportMetric(ratios[0], "x-least")
	b.ReportMetric(ratios[len(ratios)-1], "x-most")
	b.ReportMetric(all/float64(b.N), "lives/s")
}

// look has viewers look at pages. n counts their frames.
func (x *site) look(viewers int, paths []string) (n *atomic.Int64, leave func()) {
	n = new(atomic.Int64)
	var conns []net.Conn
	var done sync.WaitGroup
	for i := range viewers {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i/20))}} // one address may have 25 viewers
		conn, err := from.Dial("tcp", x.addr)
		require.NoError(x.b, err)
		_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", paths[i%len(paths)], x.addr)
		require.NoError(x.b, err)
		conns = append(conns, conn)
		done.Go(func() {
			r := bufio.NewReaderSize(conn, 64<<10)
			buf := make([]byte, 64<<10)
			for {
				k, err := r.Read(buf)
				if err != nil {
					return
				}
				n.Add(int64(bytes.Count(buf[:k], []byte("\n\n"))))
			}
		})
	}
	return n, func() {
		for _, c := range conns {
			_ = c.Close()
		}
		done.Wait()
	}
}
