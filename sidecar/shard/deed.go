package shard

import (
	"bytes"
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/sidecar/deadletter"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// deed is a piece of a job: what becomes of some messages, in one commit with how far the
// job is then.
type deed struct {
	*job
	before jobProgress // without the piece
	named  []candidate // that are meant
	last   place       // where the piece ends

	next jobProgress // with it
	went bool        // next is on disk

	took  time.Duration // of the machine
	wrote time.Duration // of the disk, with what it had to do before

	taken  *queue.Claimed // of an edit: before it is read
	to     *Queue         // where messages go; nil: nowhere
	moves  []*queue.Moved // of named; nil: it is left as it is
	left   map[string]int64
	broken error       // why some were not read
	stayed int         // of those were not gone
	full   *wire.Error // why the rest does not fit
	key    *wire.Error // why a message was left because of its key
	landed []queue.Moved

	found  []*content                   // of named, where that was read before
	groups map[uint64]*deadletter.Group // of dead letters that go elsewhere, by sequence
	more   deadletter.Change            // of these, with it
	room   *pieceRoom
	trial  *trial // of a dry run: nothing is taken; nil: it is carried out

	sent bool // to another shard: a parcel is under way
}

// do carries the piece out. It returns why the job cannot go on.
func (d *deed) do() *wire.Error {
	main := d.q.main()
	main.admin.Lock()
	defer main.admin.Unlock()
	if main.deleted.Load() {
		return wire.QueueNotFound(d.q.name)
	}
	d.left = make(map[string]int64)
	if d.Op == wire.JobEdit {
		defer d.putBack()
		if werr := d.take(); werr != nil {
			return werr
		}
	}
	if moves(d.Op) && (d.taken == nil || len(d.taken.Messages) > 0) {
		if werr := d.choose(); werr != nil {
			return werr
		}
		if d.key != nil {
			d.change(func() { d.mu.refused = d.key })
		}
	}
	if len(d.named) == 0 && d.full != nil {
		return d.full
	}
	if werr := d.settle(); werr != nil {
		return werr
	}
	if d.went {
		return d.full
	}
	return nil
}

// take picks the message of an edit before it is read, and waits until what has happened
// to it is on disk: the edit makes its history anew as well, and no attempt may end
// meanwhile.
func (d *deed) take() *wire.Error {
	pick := queue.Claim{Messages: make([]queue.MessageRef, len(d.named))}
	for i := range d.named {
		pick.Messages[i] = queue.MessageRef{Seq: d.named[i].Seq, ID: d.named[i].ID}
	}
	done := make(chan error, 1)
	said, ok := d.q.run.do(d.q.changed(pick))
	if !ok {
		return d.q.Gone()
	}
	d.taken = said.picked
	if _, ok = d.q.run.do(d.q.changed(queue.WriteEntries{Ticket: done})); !ok {
		return d.q.Gone()
	}
	return d.written(done)
}

// putBack has what was taken, and not settled, wait again.
func (d *deed) putBack() {
	if d.taken == nil {
		return
	}
	var stay []uint64
	for i := range d.taken.Messages {
		stay = append(stay, d.taken.Messages[i].Seq)
	}
	d.q.run.do(d.q.changed(queue.Complete{Unclaim: stay}))
}

// moves reports whether an op makes records of messages anew.
func moves(op string) bool {
	return op != wire.JobDelete && op != wire.JobCancel && op != wire.JobRunNow
}

// target finds where messages go.
func (d *deed) target() (*Queue, *wire.Error) {
	switch d.Op {
	case wire.JobRedrive:
		return d.q.source, nil
	case wire.JobMove:
		to, werr := d.q.shard.set.Find(d.To)
		if werr == nil && to.shard != d.q.shard { // it has just been made there
			werr = wire.NoOwner(d.To)
		}
		return to, werr
	}
	return d.q, nil
}

// pieceRoom is what the pieces of a job use one after the other: each is over before the
// next one begins.
type pieceRoom struct {
	read         []content
	found        []*content
	moves, going []queue.Moved
	chosen       []*queue.Moved
}

// roomFor returns room for n, with what was in it.
func roomFor[T any](room *[]T, n int) []T {
	*room = slices.Grow((*room)[:0], n)[:n]
	return *room
}

// content is what the store has of a message.
type content struct {
	headers map[string][]string
	payload []byte // of an edit
	size    int    // of the payload
	dead    *store.Dead
	past    [][]byte // of an edit
}

// read reads the messages of the piece; nil: one is gone, or broken.
func (d *deed) read() ([]*content, *wire.Error) {
	refs := make([]store.Ref, len(d.named))
	for i := range refs {
		refs[i] = store.Ref{Queue: d.q.id, Seq: d.named[i].Seq}
	}
	room, read := roomFor(&d.room.read, len(refs)), roomFor(&d.room.found, len(refs))
	clear(read)
	err := d.q.shard.store.Read(refs, func(i int, headers, payload []byte) {
		h := room[i].headers
		if len(h) > headersKept {
			h = nil
		}
		h, err := wire.DecodeHeadersInto(h, headers)
		room[i] = content{headers: h, size: len(payload)}
		if err != nil {
			d.broken = err
			return
		}
		read[i] = &room[i]
		if d.Op == wire.JobEdit {
			read[i].payload = append([]byte{}, payload...)
		}
	})
	if err == nil && d.Op == wire.JobEdit {
		err = d.readRecords(refs, read)
	}
	switch {
	case err == nil:
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrCorrupt):
		d.broken = err
	default:
		return nil, wire.Internal(err.Error())
	}
	return read, nil
}

// headersKept is how many names of headers the room of a message is kept for.
const headersKept = 32

// readRecords adds what an edit, which makes the record of its message anew, takes over. A
// message that would come to lie there without why it is dead, or without its history, is
// not read.
func (d *deed) readRecords(refs []store.Ref, read []*content) error {
	err := d.q.shard.store.Dead(refs, func(i int, dead *store.Dead) {
		if c := read[i]; c != nil {
			c.dead = dead
		}
	})
	if err == nil {
		err = d.q.shard.store.History(refs, func(i int, records [][]byte) {
			if c := read[i]; c != nil {
				for _, r := range records {
					c.past = append(c.past, bytes.Clone(r))
				}
			}
		})
	}
	if err != nil {
		clear(read) // an edit is of one message
	}
	return err
}

// choose decides which messages go, as far as they are readable and there is room, with
// what the hook or the headers of where they go decide about them now.
func (d *deed) choose() *wire.Error {
	to, werr := d.target()
	if werr != nil {
		return werr
	}
	d.to = to
	read := d.found
	if read == nil {
		if read, werr = d.read(); werr != nil {
			return werr
		}
	}
	p := to.main().policy.Load()
	if d.trial != nil {
		if p, werr = d.trial.policyOf(to.main()); werr != nil {
			return werr
		}
	}
	room := roomFor(&d.room.moves, len(d.named))
	d.moves = roomFor(&d.room.chosen, len(d.named))
	clear(d.moves)
	var count, size int64
	for i := range d.named {
		c, own := read[i], int64(d.named[i].size)
		if c == nil {
			d.moves[i] = unread
			continue
		}
		if to != d.q {
			if d.full = d.fits(p, count, size, own); d.full != nil {
				d.cut(i)
				return nil
			}
		}
		g := &room[i]
		if why := d.moved(g, p, c, own); why != "" {
			d.left[why]++
			continue
		}
		d.moves[i] = g
		count, size = count+1, size+g.Size
	}
	return nil
}

// fits reports why a message does not go besides others of the piece.
func (d *deed) fits(p *policy, count, size, own int64) *wire.Error {
	if d.trial != nil {
		return d.trial.fits(d.to, p, count, size, own)
	}
	return d.to.room(p, count, size, own)
}

// place takes one of the places of a fairness key where the messages go.
func (d *deed) place(p *policy, key string) (queue.KeyCounts, *wire.Error) {
	if d.trial != nil {
		return nil, d.trial.place(d.to.main(), &p.settings, key)
	}
	return d.to.main().countPending(&p.settings, key)
}

// unread stands for a message that was not read: it is gone, which the machine knows, or
// broken.
var unread = new(queue.Moved)

// cut ends the piece in front of message i, for which there is no room.
func (d *deed) cut(i int) {
	d.last = d.before.At
	if i > 0 {
		d.last = d.named[i-1].place
	}
	d.named, d.moves = d.named[:i], d.moves[:i]
}

// moved makes g a message on its way, unless it is left as it is.
func (d *deed) moved(g *queue.Moved, p *policy, c *content, size int64) (why string) {
	*g = queue.Moved{Size: size}
	m := &g.Message
	m.Ref = store.Ref{Queue: d.to.id}
	if d.Op == wire.JobEdit {
		if why := d.edit(c, g); why != "" {
			return why
		}
	}
	e, werr := p.decide(d.to.main().name, c.headers, c.size)
	if d.Key != "" {
		e.FairnessKey = wire.NamedKey(d.Key)
	}
	if d.Weight != 0 {
		e.Weight = uint32(d.Weight*thousandths + 0.5)
	}
	if d.Op == wire.JobRedrive || d.to == d.q && d.Op != wire.JobEdit {
		if p.hooks[hooks.OnEnqueue] == nil {
			werr = nil // its headers were taken when it came
		}
	}
	if d.Key != "" && werr == nil {
		werr = checkKeys(&e)
	}
	if werr != nil {
		d.key = werr
		return wire.LeftBadKey
	}
	if d.to != d.q || d.Key != "" {
		counted, werr := d.place(p, e.FairnessKey)
		if werr != nil { // others may go
			d.key = werr
			return wire.LeftKeyFull
		}
		g.Counted = counted
	}
	m.Key, m.Weight, m.Cost, m.ThrottleKeys, m.CircuitKey = e.FairnessKey, e.Weight, e.Cost, e.ThrottleKeys, e.CircuitKey
	m.Priority = e.Priority
	return ""
}

// thousandths is in what weights and costs are counted.
const thousandths = 1000

// edit makes the headers and the payload of a message what the job says.
func (d *deed) edit(c *content, g *queue.Moved) (why string) {
	h := maps.Clone(c.headers)
	if h == nil {
		h = make(map[string][]string)
	}
	without := func(name string) {
		maps.DeleteFunc(h, func(other string, _ []string) bool { return strings.EqualFold(other, name) })
	}
	for _, name := range d.RemoveHeaders {
		without(name)
	}
	for name, value := range d.SetHeaders {
		without(name)
		h[name] = []string{value}
	}
	payload := c.payload
	if d.Payload != nil {
		payload, _ = base64.StdEncoding.DecodeString(*d.Payload) // it has been checked
	}
	c.headers, c.size = h, len(payload)
	m := &g.Message
	m.Headers, m.Payload, m.Dead = wire.EncodeHeaders(nil, h), payload, c.dead
	g.Edited, g.History, g.Size = true, c.past, int64(len(m.Headers)+len(m.Payload))
	if g.Size > d.q.shard.Conn.MaxPayload()-wire.HeaderRoom {
		return wire.LeftRefused
	}
	return ""
}

// settle has the machine do it, and waits for the disk.
func (d *deed) settle() *wire.Error {
	first := uint64(0)
	if d.to != nil && d.to.main() != d.q.main() {
		said, ok := d.to.run.do(d.to.changed(queue.Reserve{Count: len(d.named)}))
		if !ok {
			d.uncount()
			return d.to.Gone()
		}
		first = said.handled.Next
	}
	pick := queue.Claim{Delayed: d.Op == wire.JobRunNow}
	of := make([]int, 0, len(d.named)) // of the picked, in named
	for i := range d.named {
		switch {
		case d.taken != nil:
			of = append(of, i)
		case d.moves == nil || d.moves[i] != nil:
			pick.Messages = append(pick.Messages, queue.MessageRef{Seq: d.named[i].Seq, ID: d.named[i].ID})
			of = append(of, i)
		}
	}
	done := make(chan error, 1)
	began := time.Now()
	ok := d.q.run.settle(d.q, pick, func(p *queue.Claimed) queue.Complete {
		if d.taken != nil {
			p, d.taken = d.taken, nil
		}
		s := d.becomes(p, of, first)
		s.Ticket = done
		return s
	})
	d.took = time.Since(began)
	if !ok {
		d.uncount()
		return d.q.Gone()
	}
	if d.stayed > 0 {
		d.q.shard.Log.Error("a job leaves messages that cannot be read", "job", d.ID, "queue", d.q.name, "messages", d.stayed, "error", d.broken)
		d.change(func() { d.mu.failed = wire.Internal(d.broken.Error()) })
	}
	var err error
	select {
	case err = <-done:
		d.wrote = time.Since(began) - d.took
		d.q.run.do() // what the answer says is so
	case <-d.q.shard.lost:
		return wire.OutcomeUnknown()
	}
	return d.over(err)
}

// becomes says what becomes of the messages that were picked, and what is kept of the job
// then.
func (d *deed) becomes(p *queue.Claimed, of []int, first uint64) (s queue.Complete) {
	next := d.before.clone()
	next.At, next.Matched = d.last, next.Matched+int64(len(d.named))
	for why, n := range d.left {
		next.leave(why, n)
	}
	next.leave(wire.LeftGone, p.Gone)
	for state, n := range p.Left {
		next.leave(leftBy(d.Op, state), n)
	}
	if moves(d.Op) {
		s.Move = roomFor(&d.room.going, len(p.Messages))[:0]
	}
	gone := make([]*deadletter.Group, 0, len(p.Messages))
	for i := range p.Messages {
		l := &p.Messages[i]
		switch d.Op {
		case wire.JobDelete, wire.JobCancel:
			s.Finish = append(s.Finish, l.Seq)
		case wire.JobRunNow:
			s.Ready = append(s.Ready, l.Seq)
		default:
			g := d.moves[of[l.Index]]
			d.moves[of[l.Index]] = nil
			if g == nil || g == unread {
				s.Unclaim = append(s.Unclaim, l.Seq)
				if g == unread {
					d.stayed++
				}
				continue
			}
			d.complete(g, l)
			if first != 0 {
				g.Message.Seq = first
				first++
			}
			s.Move = append(s.Move, *g)
			gone = append(gone, d.groups[l.Seq])
		}
	}
	d.uncount()
	if d.to != nil && d.to.main() != d.q.main() {
		s.To, d.landed = d.to.name, s.Move
		d.account(1)
	}
	next.leave(wire.LeftUnreadable, int64(d.stayed))
	next.Done += int64(len(p.Messages) - len(s.Unclaim))
	d.next, d.more = next, d.q.redrives.Count(gone, d.q.shard.Now())
	s.Put = append(d.entries(&next, false), d.more.Put(d.q.name)...)
	s.Delete = d.more.Deleted(d.q.name)
	return s
}

// complete adds to a message on its way what the machine knows of it.
func (d *deed) complete(g *queue.Moved, l *queue.ClaimedMessage) {
	g.From = l.Seq
	m, was := &g.Message, &l.Message
	m.ID, m.EnqueuedAt = was.ID, was.EnqueuedAt
	m.NotBefore, m.Delayed, m.ExpiresAt = was.NotBefore, was.Delayed, was.ExpiresAt
	if d.to == d.q { // its attempts go on
		m.Attempts = was.Attempts
		if d.Op != wire.JobReprioritise && d.Op != wire.JobEdit {
			m.Key, m.Weight, m.Cost = was.Key, was.Weight, was.Cost
		}
		if d.Op == wire.JobReprioritise && d.Key == "" {
			m.Key = was.Key
		}
	}
	if d.Op == wire.JobDelay {
		m.NotBefore, m.Delayed = timeOfJob(d.RunAt), false
	}
}

// timeOfJob is a time in a request that was checked.
func timeOfJob(text string) int64 {
	at, _ := time.Parse(time.RFC3339, text)
	return at.UnixNano()
}

// uncount gives back the places of messages that do not go after all.
func (d *deed) uncount() {
	for _, g := range d.moves {
		if g != nil {
			uncountKey(g.Counted, g.Message.Key)
		}
	}
	d.moves = nil
}

// account counts what goes to another machine in (1), or out again (-1).
func (d *deed) account(sign int64) {
	for i := range d.landed {
		d.to.depth.Add(sign)
		d.to.bytes.Add(sign * d.landed[i].Size)
	}
}

// over is told how the commit of the piece ended.
func (d *deed) over(err error) *wire.Error {
	if err == nil {
		d.went = true
		if d.landed != nil {
			d.to.Tell(queue.Accept{Messages: d.landed})
			d.to.run.do()
		}
		d.q.redrives.Commit(d.more)
		d.change(func() { d.mu.jobProgress = d.next.clone() })
		return nil
	}
	if d.landed != nil {
		d.account(-1)
		for i := range d.landed {
			uncountKey(d.landed[i].Counted, d.landed[i].Message.Key)
		}
	}
	switch {
	case errors.Is(err, store.ErrNoQueue) && d.to != nil:
		return d.to.Gone()
	case !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrNotFound):
		return commitError(err)
	case len(d.named) > 1:
		return nil // they are tried one by one
	}
	d.next = d.before.clone()
	d.next.At = d.last
	d.next.Matched++
	d.next.leave(wire.LeftUnreadable, 1)
	d.change(func() { d.mu.failed = commitError(err) })
	if werr := d.keep(d.next, false); werr != nil {
		return werr
	}
	d.went = true
	return nil
}
