package sidecar

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
)

// guardBench is a fila with unreachable limits, beside a micro service on the same NATS that only
// answers. Both are connected without a socket, callers with one.
type guardBench struct {
	*testSite
	url string
}

func startGuardBench(b *testing.B) *guardBench {
	b.Helper()
	x := startSite(b, b.TempDir(), func(c *config.Config) {
		c.NATS.Embedded.Port = anyPort
		c.Throttles = []config.ThrottleTable{
			{Key: "vendor:*", Rate: "1000000", Concurrency: 1_000_000, Limit: 1_000_000_000, WindowMs: 1000},
			{Key: "tenant:*", Rate: "1000000"},
		}
	})
	server := x.connect(b)
	service, err := micro.AddService(server, micro.Config{Name: "bare", Version: "1.0.0"})
	require.NoError(b, err)
	answer := []byte(`{"allowed":true,"permit":"` + strings.Repeat("a", wire.PermitLen) + `","expires_at":"2030-01-02T15:04:35.123456789Z"}`)
	handler := micro.HandlerFunc(func(r micro.Request) { _ = r.Respond(answer) })
	require.NoError(b, service.AddEndpoint("bare", handler, micro.WithEndpointSubject("bare.guard.check.>")))
	require.NoError(b, server.Flush())
	return &guardBench{x, x.s.endpoints.embedded.ClientURL()}
}

// Requests to the bare service and to fila, with subjects and replies of the same length.
func guardBare(nc *nats.Conn) error {
	_, err := nc.Request("bare.guard.check.vendor:stripe", guardBody, time.Minute)
	return err
}

var guardBody = []byte(`{"with":["tenant:acme"],"ttl_ms":600000}`)

// guardCheck returns the permit.
func guardCheck(nc *nats.Conn, body []byte) (string, error) {
	const before = `{"allowed":true,"permit":"`
	m, err := nc.Request("fila.guard.check.vendor:stripe", body, time.Minute)
	if err != nil {
		return "", err
	}
	if len(m.Data) < len(before)+wire.PermitLen || string(m.Data[:len(before)]) != before {
		return "", wire.Internal(string(m.Data))
	}
	return string(m.Data[len(before) : len(before)+wire.PermitLen]), nil
}

func guardDone(nc *nats.Conn, permit string) error {
	_, err := nc.Request("fila.guard.done.vendor:stripe", []byte(`{"permit":"`+permit+`","outcome":"ok"}`), time.Minute)
	return err
}

// BenchmarkGuardLatency has one caller that makes one request at a time, in turn; a plain check has one
// key and no body.
func BenchmarkGuardLatency(b *testing.B) {
	x := startGuardBench(b)
	defer x.end()
	nc, err := nats.Connect(x.url)
	require.NoError(b, err)
	defer nc.Close()
	var bare, plain, check, done []time.Duration
	for range b.N {
		begin := time.Now()
		err1 := guardBare(nc)
		bare = append(bare, time.Since(begin))
		begin = time.Now()
		permit, err0 := guardCheck(nc, nil)
		plain = append(plain, time.Since(begin))
		err0 = errors.Join(err0, guardDone(nc, permit))
		begin = time.Now()
		permit, err2 := guardCheck(nc, guardBody)
		check = append(check, time.Since(begin))
		begin = time.Now()
		err3 := guardDone(nc, permit)
		done = append(done, time.Since(begin))
		if err := errors.Join(err0, err1, err2, err3); err != nil {
			b.Fatal(err)
		}
	}
	at := func(took []time.Duration, p float64) float64 {
		slices.Sort(took)
		return float64(took[int(p*float64(len(took)-1))].Nanoseconds()) / 1e3
	}
	for _, of := range []struct {
		name string
		took []time.Duration
	}{{"bare", bare}, {"plain", plain}, {"check", check}, {"done", done}} {
		b.ReportMetric(at(of.took, 0.5), of.name+"-p50-us")
		b.ReportMetric(at(of.took, 0.99), of.name+"-p99-us")
		b.ReportMetric(at(of.took, 0.5)/at(bare, 0.5), of.name+"-p50/bare")
	}
}

// BenchmarkGuardRate has 64 callers on 4 connections: b.N bare requests, only checks, only dones, and
// checks with their dones, in alternating slices.
func BenchmarkGuardRate(b *testing.B) {
	const callers, connections, slice = 64, 4, 4096
	x := startGuardBench(b)
	defer x.end()
	var ncs []*nats.Conn
	for range connections {
		nc, err := nats.Connect(x.url)
		require.NoError(b, err)
		defer nc.Close()
		ncs = append(ncs, nc)
	}
	var failed atomic.Pointer[error]
	run := func(took *time.Duration, ask func(nc *nats.Conn, i int) error) {
		var crew sync.WaitGroup
		begin := time.Now()
		for c := range callers {
			crew.Go(func() {
				for i := c; i < slice && failed.Load() == nil; i += callers {
					if err := ask(ncs[c%connections], i); err != nil {
						failed.Store(&err)
					}
				}
			})
		}
		crew.Wait()
		*took += time.Since(begin)
	}
	var bare, check, done, pair time.Duration
	permits := make([]string, slice)
	rounds := b.N/slice + 1
	for range rounds {
		run(&bare, func(nc *nats.Conn, _ int) error { return guardBare(nc) })
		run(&check, func(nc *nats.Conn, i int) (err error) { permits[i], err = guardCheck(nc, guardBody); return err })
		run(&done, func(nc *nats.Conn, i int) error { return guardDone(nc, permits[i]) })
		run(&pair, func(nc *nats.Conn, _ int) error {
			permit, err := guardCheck(nc, guardBody)
			if err != nil {
				return err
			}
			return guardDone(nc, permit)
		})
	}
	if err := failed.Load(); err != nil {
		b.Fatal(*err)
	}
	per := func(took time.Duration) float64 { return float64(rounds*slice) / took.Seconds() }
	b.ReportMetric(per(bare), "bare/s")
	b.ReportMetric(per(check), "checks/s")
	b.ReportMetric(per(done), "dones/s")
	b.ReportMetric(per(pair), "pairs/s")
}
