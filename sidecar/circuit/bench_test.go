package circuit

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/filaq/fila/breaker"
)

func BenchmarkCircuit(b *testing.B) {
	for name, o := range map[string]breaker.Outcome{"success": breaker.Success, "neutral": breaker.Neutral} {
		b.Run(name, func(b *testing.B) {
			c := newRig(b).use("stripe")
			b.ReportAllocs()
			for b.Loop() {
				p, _ := c.Allow(1)
				c.Done(p, 1, o)
			}
		})
	}
	b.Run("failure", func(b *testing.B) {
		r := newRig(b)
		limits := standard
		limits.Breaker.Threshold, limits.MaxFailures, limits.FailureWindow = 1<<62, 1<<19, 1000
		r.reg.Configure(limits, nil, nil)
		c := r.use("stripe")
		now := int64(1)
		b.ReportAllocs()
		for b.Loop() {
			now++
			p, _ := c.Allow(now)
			c.Done(p, now, breaker.Failure)
		}
	})
	b.Run("admits", func(b *testing.B) {
		c := newRig(b).use("stripe")
		b.ReportAllocs()
		for b.Loop() {
			c.Admits(1)
		}
	})
	b.Run("use", func(b *testing.B) {
		r := newRig(b)
		r.use("stripe")
		b.ReportAllocs()
		for b.Loop() {
			r.reg.Drop(r.reg.Use("stripe", 1), 1, nil)
		}
	})
	b.Run("apart", func(b *testing.B) { // a circuit for each goroutine
		r := newRig(b)
		var n atomic.Int64
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			c := r.use(strconv.FormatInt(n.Add(1), 10))
			for pb.Next() {
				p, _ := c.Allow(1)
				c.Done(p, 1, breaker.Success)
			}
		})
	})
}

func TestPassingAClosedCircuitAllocatesNothing(t *testing.T) {
	c := newRig(t).use("stripe")
	got := testing.AllocsPerRun(1000, func() {
		p, _ := c.Allow(1)
		c.Done(p, 1, breaker.Success)
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
}
