package queuetest

import (
	"bytes"
	"fmt"

	"github.com/filaq/fila/sidecar/queue"
)

// WriteEffects writes all effects of a step. Equal effects are written byte for byte the same,
// whatever addresses they have.
func WriteEffects(w *bytes.Buffer, out *queue.Effects) {
	for _, c := range out.Commits {
		fmt.Fprintf(w, "commit bytes=%d confirm=%v ticket=%v\n", c.Bytes, c.Confirm, c.Ticket != nil)
		for i := range c.Add {
			fmt.Fprintf(w, "  add %+v\n", c.Add[i])
		}
		for i := range c.Move {
			mv := &c.Move[i]
			to := mv.To
			to.Dead = nil
			fmt.Fprintf(w, "  move %+v to %+v\n", mv.From, to)
			if mv.To.Dead != nil {
				fmt.Fprintf(w, "    dead %+v\n", *mv.To.Dead)
			}
		}
		fmt.Fprintf(w, "  finish %v state %+v dedupe %+v\n", c.Finish, c.State, c.Dedupe)
		fmt.Fprintf(w, "  put %+v delete %+v replies %+v\n", c.PutConsumers, c.DeleteConsumers, c.Replies)
		for i := range c.Notes {
			writeNote(w, &c.Notes[i])
		}
	}
	for i := range out.Publish {
		d := out.Publish[i]
		fresh := "no"
		if d.Fresh != nil {
			fresh = fmt.Sprintf("%x", d.Fresh.ID)
		}
		d.Fresh = nil
		fmt.Fprintf(w, "publish %+v fresh=%s\n", d, fresh)
	}
	for i := range out.Judge {
		f := out.Judge[i]
		fresh := f.Fresh != nil
		f.Fresh = nil
		fmt.Fprintf(w, "judge %+v fresh=%v\n", f, fresh)
	}
	for _, wait := range out.Wake {
		fmt.Fprintf(w, "wake %s at %s\n", wait.Owner.(*Rig).Name, wait.Gate().Key())
	}
	for _, c := range out.Circuits {
		fmt.Fprintf(w, "circuit %s\n", c.Key())
	}
	for _, r := range out.Refuse {
		fmt.Fprintf(w, "refuse %d %s %v\n", r.Role, r.Confirm.Subject, r.Err)
	}
	for i := range out.Notes {
		writeNote(w, &out.Notes[i])
	}
	fmt.Fprintf(w, "counters %+v written %d\n", out.Counters, out.Written)
	if out.Claimed != nil {
		fmt.Fprintf(w, "claimed %+v\n", *out.Claimed)
	}
	if out.Handled != nil {
		fmt.Fprintf(w, "handled %+v\n", *out.Handled)
	}
}

func writeNote(w *bytes.Buffer, n *queue.Note) {
	note := *n
	note.Dead = nil
	fmt.Fprintf(w, "note %+v\n", note)
	if n.Dead != nil {
		fmt.Fprintf(w, "  dead %+v\n", *n.Dead)
	}
}
