package fleet

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Kind is the kind of records with one prefix. Its methods are called from several goroutines:
// Swap of one key never concurrently, Join and Away never during a Learn. They must not wait for
// the network. Keys may contain any bytes.
type Kind interface {
	// Swap returns what to write for a key over a revision. Learn follows if it was written,
	// another Swap if not. If again is not 0, another Swap follows after that time in any case.
	Swap(key string) (value []byte, over uint64, again time.Duration, ok bool)
	// Learn takes the current record.
	Learn(key string, e Entry)
	// Join begins a session with all existing records. Pending changes have to be touched again.
	Join(entries map[string]Entry)
	// Away ends a session: nothing can be written or learned.
	Away()
	// Idle reports whether a record is equal to none.
	Idle(key string, value []byte) bool
}

// Options of a [Sync]. Zero durations mean the default.
type Options struct {
	Log      *slog.Logger
	Bucket   Bucket
	Now      func() int64 // Unix ns of this host
	Instance string       // name for people; a suffix makes it unique
	// Prefix and GuardPrefix are the subject prefixes of this instance, for Others.
	Prefix, GuardPrefix string
	// Degraded is called by one goroutine when a session has ended, and with nil when the next
	// one has begun.
	Degraded func(why error)

	BeatEvery    time.Duration // 2 s
	DeadAfter    time.Duration // without a heartbeat; 10 s
	Timeout      time.Duration // of a request to the bucket; 2 s
	StartTimeout time.Duration // of each step that begins a session; 5 s
	RetryFirst   time.Duration // wait before the next session, doubled up to three times; 250 ms
	SweepEvery   time.Duration // 24 h
	IdleAfter    time.Duration // minimum age of swept records; 1 h
}

// maxSwaps limits concurrent swaps.
const maxSwaps = 64

// beatPrefix is the prefix of heartbeats in the bucket.
const beatPrefix = "i"

// Sync keeps the records of all kinds, see the package documentation. Its methods may be called
// from any goroutine.
type Sync struct {
	opt   Options
	me    string
	card  []byte          // value of heartbeats
	kinds map[string]Kind // written before Start
	clock atomic.Pointer[clock]
	stats struct{ written, refused, failed atomic.Int64 }

	stop   context.CancelFunc
	ended  sync.WaitGroup
	swaps  sync.WaitGroup // of the session
	tokens chan struct{}
	failed chan error // of the session; buffers one

	mu struct {
		sync.Mutex
		session context.Context // nil: away
		why     error           // why the last session has ended
		entries map[string]Entry
		states  map[string]*keyState // keys with work
		// strangers are instances without a heartbeat, with the value of freshest when that
		// was noticed.
		strangers map[string]time.Time
		highest   uint64    // revision that this session has seen
		freshest  time.Time // newest entry of the watch
		began     time.Time // start of the session, by the server's clock
		seen      time.Time // last echo of an own heartbeat, by this host's clock
	}
}

// keyState is the work on one key.
type keyState struct {
	again   bool        // touched during the swap
	over    uint64      // a swap over this revision was refused; the newer record has not come yet
	waiting time.Time   // since when it waits for that; zero: a swap is running
	later   *time.Timer // will touch the key
}

// New returns a Sync, which Start starts.
func New(o Options) *Sync {
	o.BeatEvery, o.DeadAfter = cmp.Or(o.BeatEvery, 2*time.Second), cmp.Or(o.DeadAfter, 10*time.Second)
	o.Timeout, o.RetryFirst = cmp.Or(o.Timeout, 2*time.Second), cmp.Or(o.RetryFirst, 250*time.Millisecond)
	o.StartTimeout = cmp.Or(o.StartTimeout, 5*time.Second)
	o.SweepEvery, o.IdleAfter = cmp.Or(o.SweepEvery, 24*time.Hour), cmp.Or(o.IdleAfter, time.Hour)
	s := &Sync{
		opt: o, me: o.Instance + "/" + crand.Text()[:10], kinds: make(map[string]Kind),
		tokens: make(chan struct{}, maxSwaps), failed: make(chan error, 1),
	}
	card, err := json.Marshal(beatCard{V: 1, Prefix: o.Prefix, GuardPrefix: o.GuardPrefix})
	if err != nil {
		panic(err) // strings
	}
	s.card = card
	s.clock.Store(&clock{err: clockUnknown})
	s.mu.entries, s.mu.states = make(map[string]Entry), make(map[string]*keyState)
	s.mu.strangers = make(map[string]time.Time)
	s.mu.why = errors.New("not started")
	return s
}

// Register sets the Kind of the records with a prefix, before Start.
func (s *Sync) Register(kind string, k Kind) { s.kinds[kind] = k }

// Me returns the id of this instance in records: its name, a slash and a suffix that is unique to
// this run.
func (s *Sync) Me() string { return s.me }

// NameOf returns the name in the id of an instance.
func NameOf(instance string) string {
	if i := strings.LastIndexByte(instance, '/'); i >= 0 {
		return instance[:i]
	}
	return instance
}

// Now returns the time of the fleet's clock, Unix ns.
func (s *Sync) Now() int64 { return s.opt.Now() + s.Offset() }

// Offset returns how far the fleet's clock is ahead of this host's.
func (s *Sync) Offset() int64 { return s.clock.Load().offset }

// Read converts a time of this host's clock to the fleet's, and returns the maximum error: half of
// a round trip to the bucket, plus drift since.
func (s *Sync) Read(now int64) (fleet, off int64) {
	c := s.clock.Load()
	return now + c.offset, c.errAt(now)
}

// Live reports whether an instance is alive, as far as the watch shows.
func (s *Sync) Live(instance string) bool {
	if instance == s.me {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live(instance)
}

func (s *Sync) live(instance string) bool {
	e, ok := s.mu.entries[bucketKey(beatPrefix, instance)]
	if !ok {
		// A watch that is behind leaves out heartbeats that newer ones follow.
		first, asked := s.mu.strangers[instance]
		if !asked {
			first = s.mu.freshest
			s.mu.strangers[instance] = first
		}
		return s.mu.freshest.Sub(first) <= s.opt.DeadAfter
	}
	last := e.At
	if last.Before(s.mu.began) {
		last = s.mu.began // it may not have come back yet
	}
	return e.Value != nil && s.mu.freshest.Sub(last) <= s.opt.DeadAfter
}

// Peers returns the sorted ids of the instances with recent heartbeats.
func (s *Sync) Peers() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for key, e := range s.mu.entries {
		if kind, instance, ok := parseKey(key); ok && kind == beatPrefix && e.Value != nil && s.mu.freshest.Sub(e.At) <= s.opt.DeadAfter {
			all = append(all, instance)
		}
	}
	slices.Sort(all)
	return all
}

// beatCard is the value of a heartbeat.
type beatCard struct {
	V           int    `json:"v"`
	Prefix      string `json:"prefix,omitempty"`
	GuardPrefix string `json:"guard_prefix,omitempty"`
}

// Other is another instance with recent heartbeats.
type Other struct {
	Name                string // for people
	Prefix, GuardPrefix string // empty: none, or an older version
}

// Others returns the other instances with recent heartbeats, sorted.
func (s *Sync) Others() []Other {
	var all []Other
	for _, instance := range s.Peers() {
		if instance == s.me {
			continue
		}
		e, _ := s.Find(beatPrefix, instance)
		var card beatCard
		if err := json.Unmarshal(e.Value, &card); err == nil {
			all = append(all, Other{Name: NameOf(instance), Prefix: card.Prefix, GuardPrefix: card.GuardPrefix})
		}
	}
	return all
}

// Kin reports whether an instance has the same subject prefix as this one: it is a node of the
// same cluster and has the same settings.
func (s *Sync) Kin(instance string) bool {
	e, _ := s.Find(beatPrefix, instance)
	var card beatCard
	return instance == s.me || json.Unmarshal(e.Value, &card) == nil && card.Prefix == s.opt.Prefix && card.Prefix != ""
}

// Find returns the newest known record of a key, of any session.
func (s *Sync) Find(kind, key string) (Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.mu.entries[bucketKey(kind, key)]
	return e, ok
}

// AgeOf returns the minimum age of a record by the server's clock, 0 if it is not known.
func (s *Sync) AgeOf(e Entry) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.At.IsZero() {
		return 0
	}
	return max(0, s.mu.freshest.Sub(e.At))
}

// Away returns why records cannot be written and read now, or nil.
func (s *Sync) Away() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.why
}

// Stats counts swaps since the start.
type Stats struct {
	Written, Refused, Failed int64
	Age                      time.Duration // since the last echo of an own heartbeat
}

// Stats returns the counters.
func (s *Sync) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{Written: s.stats.written.Load(), Refused: s.stats.refused.Load(), Failed: s.stats.failed.Load()}
	if !s.mu.seen.IsZero() {
		st.Age = time.Since(s.mu.seen)
	}
	return st
}

// Start begins the first session. It returns when that has begun or failed; then sessions are
// retried for ever, unless the error is [ErrUnusable].
func (s *Sync) Start(ctx context.Context) error {
	running, stop := context.WithCancel(context.Background())
	s.stop = stop
	begun := make(chan error, 1)
	s.ended.Go(func() { s.run(running, begun) })
	select {
	case err := <-begun:
		if errors.Is(err, ErrUnusable) {
			s.Stop()
			return err
		}
		return nil
	case <-ctx.Done():
		s.Stop()
		return ctx.Err()
	}
}

// Stop ends everything without waiting for pending writes. Permits of this instance are free at
// once if the bucket can be reached.
func (s *Sync) Stop() {
	if s.stop == nil {
		return
	}
	s.stop()
	s.ended.Wait()
}

// Touch makes Sync call Swap of a key soon. It does nothing while there is no session.
func (s *Sync) Touch(kind, key string) { s.touch(bucketKey(kind, key)) }

func (s *Sync) touch(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.session == nil {
		return
	}
	st := s.mu.states[id]
	switch {
	case st == nil:
		st = &keyState{}
		s.mu.states[id] = st
		s.start(id, st)
	case st.later != nil:
		st.later.Stop()
		st.later = nil
		s.start(id, st)
	default:
		st.again = true
	}
}

// start starts the swaps of a key. Its caller holds mu.
func (s *Sync) start(id string, st *keyState) {
	st.waiting, st.again = time.Time{}, false
	if ctx := s.mu.session; ctx != nil {
		s.swaps.Go(func() { s.swap(ctx, id, st) })
	}
}

// swap writes a key until there is nothing to write or it has to wait.
func (s *Sync) swap(ctx context.Context, id string, st *keyState) {
	kind, name, _ := parseKey(id)
	k := s.kinds[kind]
	for {
		value, over, again, ok := k.Swap(name)
		if !ok {
			if s.rest(ctx, id, st, again) {
				return
			}
			continue
		}
		rev, err := s.write(ctx, id, value, over)
		switch {
		case err == nil:
			s.stats.written.Add(1)
			s.own(id, name, k, Entry{Key: id, Value: value, Rev: rev})
		case errors.Is(err, ErrConflict):
			s.stats.refused.Add(1)
			if s.await(id, st, over) {
				return
			}
		case ctx.Err() != nil:
			return
		default:
			s.stats.failed.Add(1)
			s.fail(fmt.Errorf("write %s: %w", id, err))
			return
		}
	}
}

// write performs one swap, and repeats it without a revision if a deletion marker may have been
// purged.
func (s *Sync) write(ctx context.Context, id string, value []byte, over uint64) (rev uint64, err error) {
	select {
	case s.tokens <- struct{}{}:
		defer func() { <-s.tokens }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	s.mu.Lock()
	e, known := s.mu.entries[id]
	s.mu.Unlock()
	try := func(over uint64) {
		ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout)
		defer cancel()
		rev, err = s.opt.Bucket.Swap(ctx, id, value, over)
	}
	try(over)
	if errors.Is(err, ErrConflict) && over != 0 && (!known || e.Value == nil && e.Rev == over) {
		try(0)
	}
	return rev, err
}

// own applies an own write, unless the watch was faster.
func (s *Sync) own(id, name string, k Kind, e Entry) {
	s.mu.Lock()
	newer := s.mu.entries[id].Rev >= e.Rev
	if !newer {
		s.mu.entries[id], s.mu.highest = e, max(s.mu.highest, e.Rev) // the watch will bring its time
	}
	s.mu.Unlock()
	if !newer {
		k.Learn(name, e)
	}
}

// rest ends the work on a key, unless it was touched meanwhile.
func (s *Sync) rest(ctx context.Context, id string, st *keyState, again time.Duration) (ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case st.again:
		st.again = false
		return false
	case again > 0:
		st.later = time.AfterFunc(again, func() { s.touch(id) })
	default:
		delete(s.mu.states, id)
	}
	return true
}

// await makes a key wait for the newer record, unless it has come.
func (s *Sync) await(id string, st *keyState, over uint64) (waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.entries[id].Rev > over {
		return false
	}
	st.waiting, st.over = time.Now(), over
	return true
}

func (s *Sync) fail(err error) {
	select {
	case s.failed <- err:
	default: // it has failed already
	}
}

// bucketKey encodes a key of a Kind, which may contain any bytes, for the bucket.
func bucketKey(kind, key string) string {
	return kind + "." + base64.RawURLEncoding.EncodeToString([]byte(key))
}

func parseKey(id string) (kind, key string, ok bool) {
	kind, text, ok := strings.Cut(id, ".")
	raw, err := base64.RawURLEncoding.DecodeString(text)
	return kind, string(raw), ok && err == nil
}
