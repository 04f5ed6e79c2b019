package sidecar

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/filaq/fila/breaker"
)

func BenchmarkCircuit(b *testing.B) {
	for name, o := range map[string]breaker.Outcome{"success": breaker.Success, "neutral": breaker.Neutral} {
		b.Run(name, func(b *testing.B) {
			ci := newCircuitRig(b).cs.use("stripe")
			b.ReportAllocs()
			for b.Loop() {
				p, _ := ci.allow(1)
				ci.done(&p, 1, o)
			}
		})
	}
	b.Run("failure", func(b *testing.B) {
		cs := newCircuitRig(b).cs
		limits := cs.mu.defaults
		limits.breaker.Threshold, limits.maxFailures, limits.failureWindow = 1<<62, 1<<19, 1000
		cs.configure(limits, nil)
		ci := cs.use("stripe")
		now := int64(1)
		b.ReportAllocs()
		for b.Loop() {
			now++
			p, _ := ci.allow(now)
			ci.done(&p, now, breaker.Failure)
		}
	})
	b.Run("admits", func(b *testing.B) {
		ci := newCircuitRig(b).cs.use("stripe")
		b.ReportAllocs()
		for b.Loop() {
			ci.admits(1)
		}
	})
	b.Run("use", func(b *testing.B) {
		cs := newCircuitRig(b).cs
		cs.use("stripe")
		b.ReportAllocs()
		for b.Loop() {
			cs.drop(cs.use("stripe"))
		}
	})
	b.Run("apart", func(b *testing.B) { // each goroutine its own circuit
		cs := newCircuitRig(b).cs
		var n atomic.Int64
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			ci := cs.use(strconv.FormatInt(n.Add(1), 10))
			for pb.Next() {
				p, _ := ci.allow(1)
				ci.done(&p, 1, breaker.Success)
			}
		})
	})
}

func TestPassingAClosedCircuitAllocatesNothing(t *testing.T) {
	ci := newCircuitRig(t).cs.use("stripe")
	got := testing.AllocsPerRun(1000, func() {
		p, _ := ci.allow(1)
		ci.done(&p, 1, breaker.Success)
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
}
