package queuetest

import (
	"fmt"
	"os"

	"github.com/filaq/fila/sidecar/queue"
)

func debugTrace(s *Sim) {
	if os.Getenv("SIMDEBUG") == "" {
		return
	}
	for i := range actions {
		do, name := actions[i].do, i
		actions[i].do = func(s *Sim) { fmt.Printf("action %d\n", name); do(s) }
	}
	s.Trace = func(r *Rig, out *queue.Effects) {
		n := s.byRig[r]
		for side := range queue.Sides {
			for _, key := range plainKeys {
				v := r.M.Key(side, key, s.Now)
				fmt.Printf("   side %d key %s weight %d deficit %d pending %d book %+v\n", side, key, v.Weight, v.Deficit, v.Pending, n.sides[side].fair.flows[plainKey(key)])
			}
		}
		for key, c := range s.circuits {
			i, _ := s.Circuits.Info(key)
			fmt.Printf("   circuit %s book %+v real %+v\n", key, *c, i)
		}
		fmt.Printf("step %d %s at %d settings %s\n", s.Steps, r.Name, s.Now-Start, n.settings.Ordering+n.settings.OnBlocked)
		for side := range n.sides {
			fmt.Printf("    paused %d keys %v\n", n.sides[side].paused, n.sides[side].keys)
		}
		for _, m := range s.all {
			fmt.Printf("   has %v place %d ready %d weight %d exempt %v own %v failed %v back %d\n", m, m.place, m.ready, m.weight, m.exempt, m.own, m.failed, m.back)
		}
		for _, c := range out.Commits {
			fmt.Printf("   commit add %d finish %d state %d\n", len(c.Add), len(c.Finish), len(c.State))
			for i := range c.Move {
				fmt.Printf("     move %v to %v dead %v\n", c.Move[i].From, c.Move[i].To.Ref, c.Move[i].To.Dead)
			}
		}
		for _, d := range out.Publish {
			fmt.Printf("   publish %d %d %s %s seq %d key %s attempt %d lease %d deadline %d\n", d.Kind, d.Side, d.Subject, d.Status, d.Token.Seq, d.Key, d.Token.Attempt, d.Token.Lease, d.Deadline-s.Now)
		}
		for _, f := range out.Judge {
			fmt.Printf("   judge %+v\n", f)
		}
		for _, f := range out.Notes {
			fmt.Printf("   note %+v\n", f)
		}
	}
}
