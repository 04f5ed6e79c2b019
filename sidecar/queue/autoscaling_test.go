package queue_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// autoscaling is an hour of a queue whose workers an autoscaler starts and stops: two messages a
// second that take 10 s each, and from minute 10 on an import of 1,500 messages for a vendor that
// admits one a second. A worker works on two messages at a time.
type autoscaling struct {
	*rig
	policy  func(s *autoscaling, waiting int64) int64 // workers
	meter   inspect.WantedMeter
	demand  inspect.Demand
	workers []*scaledWorker
	started int
	downs   []int64 // what the policy said in the last five minutes
	ends    []finish
	paid    time.Duration
	most    int64
	waits   []time.Duration // of messages without a vendor
	orders  map[store.ID]int64
	done    int // messages for the vendor
	doneAt  time.Duration
}

type scaledWorker struct {
	name  string
	ready int64
	up    bool
}

type finish struct {
	at int64
	d  delivery
}

const (
	scaleTick    = 500 * time.Millisecond
	scaleEvery   = 30 * time.Second // KEDA's pollingInterval
	scaleStart   = 20 * time.Second // until a worker works
	scaleDown    = 5 * time.Minute  // the HPA's stabilization window
	scaleMax     = 100
	scalePlaces  = 2
	scaleAttempt = 10 * time.Second
	scaleImport  = 1500
)

// byBacklog wants a place for each message that is ready or in flight.
func byBacklog(_ *autoscaling, backlog int64) int64 { return (backlog + scalePlaces - 1) / scalePlaces }

// byWanted asks as /scale does.
func byWanted(o api.ScaleOptions) func(s *autoscaling, backlog int64) int64 {
	o.PerWorker = scalePlaces
	return func(s *autoscaling, _ int64) int64 {
		r := s.M.Inspect(queue.Main)
		pending, inFlight := r.Pending()
		return o.Scale([]api.QueueWanted{{
			Wanted: s.meter.Wanted(wire.HorizonIndex(o.Horizon), pending, inFlight), AttemptMs: float64(r.MeanAttempt(s.Now)) / 1e6,
		}}).Workers
	}
}

// run simulates an hour and returns a row of the table.
func (s *autoscaling) run(name string) string {
	s.LimitNow("vendor", throttle.Limits{Rate: throttle.PerSecond(1000)})
	began := s.Now
	for s.Now < began+int64(time.Hour) {
		s.tick(time.Duration(s.Now - began))
	}
	slices.Sort(s.waits)
	busy := (time.Duration(s.done+len(s.waits)) * scaleAttempt).Minutes() / scalePlaces
	quantile := func(q float64) string {
		return s.waits[int(q*float64(len(s.waits)-1))].Round(100 * time.Millisecond).String()
	}
	return fmt.Sprintf("| %s | %.0f | %d | %.0f %% | %s | %s | %s |", name, s.paid.Minutes(), s.most, 100*busy/s.paid.Minutes(),
		quantile(0.5), quantile(0.99), s.doneAt.Round(time.Minute))
}

func (s *autoscaling) tick(at time.Duration) {
	m := s.Message("orders", nil)
	s.orders[m.ID] = s.Now
	s.Accept(m)
	if at == 10*time.Minute {
		for range scaleImport {
			s.Accept(s.Message("import", keys("vendor")))
		}
	}
	if at%(10*time.Second) == 0 {
		s.demand.Reset()
		for s.M.Inspect(queue.Main).ReadDemand(&s.demand, s.Now) { //nolint:revive // until it is complete
		}
		s.meter.Add(s.demand.Wanted(), s.Now)
	}
	if at%scaleEvery == 0 {
		s.scale()
	}
	for _, w := range s.workers {
		s.paid += scaleTick
		if !w.up && s.Now >= w.ready {
			w.up = true
			s.Consume(queue.Main, w.name, scalePlaces, 0)
		}
	}
	for len(s.ends) > 0 && s.ends[0].at <= s.Now {
		d := s.ends[0].d
		s.ends = s.ends[1:]
		s.Post(queue.Input{Kind: queue.Acked, Token: d.Token, Ack: wire.Ack{Kind: wire.AckDone}})
		if _, free := s.orders[d.ID]; !free {
			if s.done++; s.done == scaleImport {
				s.doneAt = at
			}
		}
	}
	s.Run()
	if at%(10*time.Second) == 0 {
		s.Commit() // a step of the model of the disk costs as much as it holds
	}
	for _, d := range s.Deliveries() {
		s.ends = append(s.ends, finish{s.Now + int64(scaleAttempt), d})
		if since, free := s.orders[d.ID]; free {
			s.waits = append(s.waits, time.Duration(s.Now-since))
		}
	}
	s.Pass(scaleTick)
}

// scale starts workers at once, and stops them when fewer have been enough for five minutes. A
// worker that stops leaves first and finishes what it has.
func (s *autoscaling) scale() {
	pending, inFlight := s.M.Inspect(queue.Main).Pending()
	s.downs = append(s.downs, min(max(s.policy(s, pending+inFlight), 1), scaleMax))
	if n := int(scaleDown / scaleEvery); len(s.downs) > n {
		s.downs = s.downs[1:]
	}
	want := slices.Max(s.downs)
	s.most = max(s.most, want)
	for int64(len(s.workers)) < want {
		s.started++
		s.workers = append(s.workers, &scaledWorker{name: fmt.Sprint("worker-", s.started), ready: s.Now + int64(scaleStart)})
	}
	for int64(len(s.workers)) > want {
		last := s.workers[len(s.workers)-1]
		s.workers = s.workers[:len(s.workers)-1]
		if last.up {
			s.Leave(queue.Main, last.name)
		}
	}
}

// Workers scaled by the backlog wait for the vendor; docs/autoscaling.md has the table.
func TestAutoscaling(t *testing.T) {
	var rows []string
	for _, p := range []struct {
		name   string
		policy func(*autoscaling, int64) int64
	}{
		{"(ready + in flight) / 2", byBacklog},
		{"`/scale?per_worker=2&target_wait=30s&horizon=30s`", byWanted(api.ScaleOptions{TargetWait: 30 * time.Second, Horizon: 30 * time.Second})},
		{"`/scale?per_worker=2&target_wait=15s&horizon=30s`", byWanted(api.ScaleOptions{TargetWait: 15 * time.Second, Horizon: 30 * time.Second})},
	} {
		s := &autoscaling{rig: newWanted(t, nil), policy: p.policy, orders: make(map[store.ID]int64)}
		rows = append(rows, s.run(p.name))
	}
	table := strings.Join(rows, "\n")
	t.Log("\n" + table)
	page, err := os.ReadFile("../../docs/autoscaling.md")
	require.NoError(t, err)
	require.Contains(t, string(page), table, "the table of the page is another one")
}
