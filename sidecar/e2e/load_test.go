package e2e

import (
	"context"
	"encoding/base64"
	bits "encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// load runs producers and consumers of several queues against a fila that restarts, and records
// what they see in a history.
type load struct {
	t      testing.TB
	h      *history
	seed   uint64
	queues []string
	conns  []*nats.Conn
	limit  time.Duration // limit of a request, after which its outcome is unknown; 0: the end of the phase
	full   bool          // the log of a shard may be full: 429
	open   int           // confirmed messages at which producers pause

	phase    atomic.Pointer[phase]
	draining atomic.Bool // consumers ack everything, producers have ended
	stop     context.CancelFunc
	ctx      context.Context
	work     sync.WaitGroup // producers
	workers  atomic.Uint64  // seeds the random sources
	together atomic.Int64   // messages that came with others in a batch

	stale struct {
		sync.Mutex
		bag []staleLease
	}
}

// phase is a time in which fila and NATS are up.
type phase struct {
	ctx    context.Context // ends before the next phase begins
	cancel context.CancelFunc
	ready  chan struct{}
}

// staleLease is a lease that its consumer has given up or finished.
type staleLease struct {
	id    string
	lease *seenLease
}

const (
	loadVisibility = 1500 * time.Millisecond
	loadBacklog    = 1500 // open messages at which producers pause
	loadCredit     = 24
)

// newLoad returns a load, with further options of its connections; the caller begins its phases.
func newLoad(t testing.TB, url string, seed uint64, opts []nats.Option, queues ...string) *load {
	t.Helper()
	l := &load{t: t, h: newHistory(int64(loadVisibility)), seed: seed, queues: queues, open: loadBacklog}
	l.ctx, l.stop = context.WithCancel(context.Background())
	for i := range 4 {
		buffer := nats.DefaultReconnectBufSize
		if i == 2 {
			buffer = -1 // admin requests must not arrive late, after newer ones
		}
		nc, err := nats.Connect(url, append([]nats.Option{
			nats.ReconnectBufSize(buffer), nats.MaxReconnects(-1), nats.ReconnectWait(10 * time.Millisecond), nats.ReconnectJitter(0, 0),
			nats.RetryOnFailedConnect(true), nats.Timeout(patience),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // broken pipes are intended here
		}, opts...)...)
		require.NoError(t, err)
		l.conns = append(l.conns, nc)
	}
	t.Cleanup(func() {
		l.stop()
		for _, nc := range l.conns {
			nc.Close()
		}
		l.work.Wait()
	})
	l.newPhase()
	return l
}

// newPhase begins a phase that is not ready yet.
func (l *load) newPhase() *phase {
	p := &phase{ready: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(l.ctx)
	l.phase.Store(p)
	return p
}

// await returns the current phase once it is ready, nil at the end of the load.
func (l *load) await() *phase {
	for {
		p := l.phase.Load()
		select {
		case <-p.ready:
			if p.ctx.Err() == nil {
				return p
			}
		case <-p.ctx.Done():
		case <-l.ctx.Done():
			return nil
		}
		if !pause(l.ctx, time.Millisecond) {
			return nil
		}
	}
}

// pause waits; it returns false if ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *load) random() *rand.Rand { return rand.New(rand.NewPCG(l.seed, l.workers.Add(1))) }

// setup creates the queues.
func (l *load) setup(c *client) {
	for _, queue := range l.queues {
		c.createQueue(queue, m{
			"visibility_timeout_ms": loadVisibility.Milliseconds(),
			"on_enqueue":            `function on_enqueue(msg) return { fairness_key = msg.headers["tenant"], weight = tonumber(msg.headers["weight"]) } end`,
			"on_failure":            `function on_failure(msg) return { action = msg.attempts >= 6 and "dlq" or "retry", delay_ms = not msg.requested_delay_ms and msg.attempts == 2 and 20 or nil } end`,
		})
	}
}

// start starts all workers.
func (l *load) start() {
	for i, queue := range l.queues {
		l.work.Add(4)
		go l.produceOneByOne(queue, fmt.Sprint("one", i))
		go l.produceBatches(queue, fmt.Sprint("batch", i))
		go l.producePipelined(queue, fmt.Sprint("pipe", i))
		go l.produceCareless(queue, fmt.Sprint("careless", i))
		for j := range 2 {
			go l.consume(l.conns[j], queue, fmt.Sprintf("c%d-%d", i, j), 16*j)
		}
		go l.consume(l.conns[2], queue+".dlq", fmt.Sprint("d", i), 0)
	}
	go l.answerStale()
}

// drain stops the producers and lets the consumers finish everything.
func (l *load) drain(c *client) {
	l.t.Helper()
	l.draining.Store(true)
	done := make(chan struct{})
	go func() { l.work.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		require.Fail(l.t, "the producers did not end")
	}
	for _, queue := range l.queues {
		c.waitDepth(queue, 0)
		c.waitDepth(queue+".dlq", 0)
	}
	for _, queue := range l.queues { // the last ones may have moved meanwhile
		c.waitDepth(queue, 0)
	}
	require.Positive(l.t, l.together.Load(), "messages in batches")
}

// newMessage returns a new message and records it.
func (l *load) newMessage(rng *rand.Rand, queue, key string) *nats.Msg {
	payload := key + " " + strings.Repeat(strconv.Itoa(rng.IntN(10)), 10+rng.IntN(900))
	if rng.IntN(50) == 0 {
		payload += strings.Repeat("large ", 5000)
	}
	tenant := fmt.Sprint("t", rng.IntN(5))
	l.h.published(key, queue, tenant, payload)
	return message(queue, payload, "Test-Key", key, "tenant", tenant, "weight", strconv.Itoa(1+rng.IntN(3)))
}

// next waits until a producer may publish; nil at the end.
func (l *load) next() *phase {
	for {
		p := l.await()
		if p == nil || l.draining.Load() {
			return nil
		}
		if open, _ := l.h.counts(); open < l.open {
			return p
		}
		if !pause(l.ctx, 2*time.Millisecond) {
			return nil
		}
	}
}

// produceOneByOne waits for each confirmation and repeats unanswered messages; the dedupe id
// keeps them single.
func (l *load) produceOneByOne(queue, name string) {
	defer l.work.Done()
	rng := l.random()
	for i := 0; ; i++ {
		key := fmt.Sprint(name, "-", i)
		var msg *nats.Msg
		for answered := false; !answered; {
			p := l.next()
			if p == nil {
				return
			}
			if msg == nil {
				msg = l.newMessage(rng, queue, key)
				msg.Header.Set("Nats-Msg-Id", key)
			}
			reply, err := l.request(l.conns[3], p, msg)
			answered = err == nil && l.confirm(key, reply)
			if !answered && !pause(l.ctx, 5*time.Millisecond) {
				return
			}
		}
	}
}

// request sends a request and waits for the answer, the limit, or the end of the phase.
func (l *load) request(nc *nats.Conn, p *phase, msg *nats.Msg) (*nats.Msg, error) {
	if l.limit == 0 {
		return nc.RequestMsgWithContext(p.ctx, msg)
	}
	ctx, cancel := context.WithTimeout(p.ctx, l.limit)
	defer cancel()
	return nc.RequestMsgWithContext(ctx, msg)
}

// confirm records a reply to an enqueue and reports whether it was a confirmation.
func (l *load) confirm(key string, reply *nats.Msg) bool {
	if reply.Header.Get("Status") == "503" {
		return false // buffered messages arrived before fila had subscribed
	}
	if e := errorOf(l.t, reply); e != nil {
		if e.Code != 503 && e.Code != 500 && (e.Code != 429 || !l.full) {
			l.t.Errorf("%s: enqueue was refused: %v", key, e)
		}
		return false
	}
	var out enqueued
	if !decode(l.t, reply.Data, &out) {
		return false
	}
	l.h.confirmed(key, out.ID)
	return true
}

// produceBatches sends batches, waits for each reply, and repeats messages without a
// confirmation in one batch.
func (l *load) produceBatches(queue, name string) {
	defer l.work.Done()
	rng := l.random()
	var keys []string // of unconfirmed messages
	var messages []*nats.Msg
	for i := 0; ; {
		p := l.next()
		if p == nil {
			return
		}
		if len(messages) == 0 {
			for range 1 + rng.IntN(30) {
				keys = append(keys, fmt.Sprint(name, "-", i))
				messages = append(messages, l.newMessage(rng, queue, keys[len(keys)-1]))
				messages[len(messages)-1].Header.Set("Nats-Msg-Id", keys[len(keys)-1])
				i++
			}
		}
		reply, err := l.request(l.conns[3], p, batchMessage(messages))
		if err != nil || !l.confirmBatch(&keys, &messages, reply) {
			if !pause(l.ctx, 5*time.Millisecond) {
				return
			}
		}
	}
}

// batchMessage returns the enqueue of a batch.
func batchMessage(messages []*nats.Msg) *nats.Msg {
	batch := &nats.Msg{Subject: messages[0].Subject, Header: nats.Header{"Fila-Batch": {strconv.Itoa(len(messages))}}}
	for _, m := range messages {
		var lines strings.Builder
		for name, values := range m.Header {
			fmt.Fprintf(&lines, "%s: %s\r\n", name, values[0])
		}
		batch.Data = bits.BigEndian.AppendUint32(batch.Data, uint32(lines.Len()))
		batch.Data = bits.BigEndian.AppendUint32(batch.Data, uint32(len(m.Data)))
		batch.Data = append(append(batch.Data, lines.String()...), m.Data...)
	}
	return batch
}

// confirmBatch records the confirmations in a reply to a batch and leaves the other messages. It
// reports whether there are none.
func (l *load) confirmBatch(keys *[]string, messages *[]*nats.Msg, reply *nats.Msg) bool {
	if reply.Header.Get("Status") == "503" {
		return false
	}
	if e := errorOf(l.t, reply); e != nil {
		if e.Code != 503 && e.Code != 500 && (e.Code != 429 || !l.full) {
			l.t.Errorf("batch of %s: %v", (*keys)[0], e)
		}
		return false
	}
	var out struct {
		Queue      string `json:"queue"`
		IDs        string `json:"ids"`
		Duplicates []int  `json:"duplicates"`
		Refused    []struct {
			Index       int    `json:"index"`
			Code        int    `json:"code"`
			ErrCode     int    `json:"err_code"`
			Description string `json:"description"`
			RetryAfter  int    `json:"retry_after_ms"`
		} `json:"refused"`
		Room int `json:"room"`
	}
	if !decode(l.t, reply.Data, &out) {
		return false
	}
	ids, err := base64.RawURLEncoding.DecodeString(out.IDs)
	if err != nil || len(ids) != 16*len(*keys) {
		l.t.Errorf("reply to a batch of %d: %s", len(*keys), reply.Data)
		return false
	}
	refused := map[int]bool{}
	for _, no := range out.Refused {
		if no.Code != 503 && no.Code != 500 && (no.Code != 429 || !l.full) {
			l.t.Errorf("%s in a batch was refused: %v", (*keys)[no.Index], no)
		}
		refused[no.Index] = true
	}
	var openKeys []string
	var open []*nats.Msg
	for i, key := range *keys {
		if refused[i] {
			openKeys, open = append(openKeys, key), append(open, (*messages)[i])
			continue
		}
		id := ids[16*i : 16*i+16]
		l.h.confirmed(key, fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]))
	}
	*keys, *messages = openKeys, open
	return len(open) == 0
}

// producePipelined keeps many enqueues open at a time.
func (l *load) producePipelined(queue, name string) {
	defer l.work.Done()
	rng := l.random()
	nc := l.conns[3]
	inbox := nats.NewInbox()
	replies := make(chan *nats.Msg, 4096)
	sub, err := nc.ChanSubscribe(inbox+".*", replies)
	if err != nil {
		l.t.Errorf("subscribe: %v", err)
		return
	}
	defer func() { _ = sub.Unsubscribe() }()
	for i := 0; ; {
		p := l.next()
		if p == nil {
			return
		}
		batch := 1 + rng.IntN(100)
		open := batch
		var late <-chan time.Time
		if l.limit > 0 {
			late = time.After(l.limit)
		}
		for range batch {
			key := fmt.Sprint(name, "-", i)
			msg := l.newMessage(rng, queue, key)
			msg.Reply = inbox + "." + key
			i++
			if nc.PublishMsg(msg) != nil {
				open--
			}
		}
	replies:
		for open > 0 && p.ctx.Err() == nil {
			select {
			case reply := <-replies: // perhaps of an earlier batch, which is fine
				l.confirm(reply.Subject[len(inbox)+1:], reply)
				open--
			case <-late:
				break replies
			case <-p.ctx.Done():
			}
		}
	}
}

// produceCareless publishes without a reply subject.
func (l *load) produceCareless(queue, name string) {
	defer l.work.Done()
	rng := l.random()
	for i := 0; ; i++ {
		p := l.next()
		if p == nil {
			return
		}
		_ = l.conns[3].PublishMsg(l.newMessage(rng, queue, fmt.Sprint(name, "-", i)))
		if !pause(l.ctx, time.Duration(rng.IntN(20))*time.Millisecond) {
			return
		}
	}
}
