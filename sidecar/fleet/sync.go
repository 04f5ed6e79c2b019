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

// Kind is what the records of one prefix are. Its methods are called from several
// goroutines, Swap for one key one after the other, Join and Away without a Learn beside
// them. They must not wait for the network. Keys are as the Kind has them, any bytes.
type Kind interface {
	// Swap returns what is to be written for a key over a revision, if anything is. The
	// Kind hears of it by Learn if it was written, and is asked again if it was not. After
	// again, unless that is 0, it is asked again in any case.
	Swap(key string) (value []byte, over uint64, again time.Duration, ok bool)
	// Learn takes what is there now.
	Learn(key string, e Entry)
	// Join begins a session, with all that is there: a key that is not among entries has
	// no record. What is to be written has to be touched again.
	Join(entries map[string]Entry)
	// Away ends a session: nothing can be written, and nothing is heard of others.
	Away()
	// Idle reports whether the record of a key says nothing that no record says.
	Idle(key string, value []byte) bool
}

// Options of a [Sync]. Times that are 0 have defaults.
type Options struct {
	Log      *slog.Logger
	Bucket   Bucket
	Now      func() int64 // Unix ns of this host
	Instance string       // name of this one for people; it is made unique
	// Prefix and GuardPrefix are the subject prefixes that this instance answers, which
	// others learn by Others.
	Prefix, GuardPrefix string
	// Degraded is told, by one goroutine, when a session has ended, and with nil when
	// the next one has begun.
	Degraded func(why error)

	BeatEvery    time.Duration // 2 s
	DeadAfter    time.Duration // 10 s without a beat
	Timeout      time.Duration // of a request to the bucket; 2 s
	StartTimeout time.Duration // of each step that begins a session; 5 s
	RetryFirst   time.Duration // before the next session; 250 ms, doubled up to 8 times
	SweepEvery   time.Duration // 24 h
	IdleAfter    time.Duration // 1 h; how old an idle record has to be to be swept
}

// maxSwaps bounds how many swaps are under way at once.
const maxSwaps = 64

// beatPrefix is the letter of the records by which instances tell that they live.
const beatPrefix = "i"

// Sync keeps the records of all kinds. See the package's comment. Its methods may be
// called from any goroutine.
type Sync struct {
	opt   Options
	me    string
	card  []byte          // the value of beats
	kinds map[string]Kind // written before Start
	clock atomic.Pointer[clock]
	stats struct{ written, refused, failed atomic.Int64 }

	stop   context.CancelFunc
	ended  sync.WaitGroup
	swaps  sync.WaitGroup // of the session
	tokens chan struct{}
	failed chan error // of the session, has room for one

	mu struct {
		sync.Mutex
		session context.Context // nil: away
		why     error           // the last session has ended
		entries map[string]Entry
		states  map[string]*keyState // of keys with something to do
		// strangers are instances of which no beat has come, with what was freshest when
		// that was seen.
		strangers map[string]time.Time
		freshest  time.Time // the newest that the watch has brought
		began     time.Time // the session, by the server's clock
		seen      time.Time // the own beat has come back last, of this host
	}
}

// keyState is what is under way for one key.
type keyState struct {
	again   bool        // it was touched meanwhile
	over    uint64      // a swap over it was refused, and the newer record has not come yet
	waiting time.Time   // since then; zero: a swap runs
	later   *time.Timer // touches it
}

// New returns a Sync that does nothing before Start.
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

// Register names what the records of a letter are, before Start.
func (s *Sync) Register(letter string, k Kind) { s.kinds[letter] = k }

// Me is this instance as records name it: its name, a slash and what makes this run of
// it unique.
func (s *Sync) Me() string { return s.me }

// NameOf returns the name of an instance for people.
func NameOf(instance string) string {
	if i := strings.LastIndexByte(instance, '/'); i >= 0 {
		return instance[:i]
	}
	return instance
}

// Now is the fleet's clock, Unix ns.
func (s *Sync) Now() int64 { return s.opt.Now() + s.Offset() }

// Offset is how far the fleet's clock is ahead of this host's.
func (s *Sync) Offset() int64 { return s.clock.Load().offset }

// Read is the fleet's clock at a time of this host's, and how far off that may be: by half
// of a round trip to the bucket, and what clocks drift apart since.
func (s *Sync) Read(now int64) (fleet, off int64) {
	c := s.clock.Load()
	return now + c.offset, c.errAt(now)
}

// Live reports whether an instance is alive, as far as the watch has told.
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
		// A watch that is behind leaves out a beat that was followed by another one.
		first, asked := s.mu.strangers[instance]
		if !asked {
			first = s.mu.freshest
			s.mu.strangers[instance] = first
		}
		return s.mu.freshest.Sub(first) <= s.opt.DeadAfter
	}
	last := e.At
	if last.Before(s.mu.began) {
		last = s.mu.began // those who were away, too, have not come back yet
	}
	return e.Value != nil && s.mu.freshest.Sub(last) <= s.opt.DeadAfter
}

// Peers returns the instances whose beats come, in order.
func (s *Sync) Peers() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for key, e := range s.mu.entries {
		if letter, instance, ok := parseKey(key); ok && letter == beatPrefix && e.Value != nil && s.mu.freshest.Sub(e.At) <= s.opt.DeadAfter {
			all = append(all, instance)
		}
	}
	slices.Sort(all)
	return all
}

// beatCard is what a beat says of its instance.
type beatCard struct {
	V           int    `json:"v"`
	Prefix      string `json:"prefix,omitempty"`
	GuardPrefix string `json:"guard_prefix,omitempty"`
}

// Other is another instance whose beats come.
type Other struct {
	Name                string // for people
	Prefix, GuardPrefix string // that it answers; empty: none, or it is of before they were told
}

// Others returns the other instances whose beats come, in order.
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

// Kin reports whether an instance answers the same subject prefix as this one, as far as
// its beats have told: it is a node of the same cluster, and goes by the same settings.
func (s *Sync) Kin(instance string) bool {
	e, _ := s.Find(beatPrefix, instance)
	var card beatCard
	return instance == s.me || json.Unmarshal(e.Value, &card) == nil && card.Prefix == s.opt.Prefix && card.Prefix != ""
}

// Find returns the newest record that has come, of whatever session.
func (s *Sync) Find(letter, key string) (Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.mu.entries[bucketKey(letter, key)]
	return e, ok
}

// AgeOf returns how long ago a record was written, by the server's clock, at the least; 0
// if that is not known.
func (s *Sync) AgeOf(e Entry) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.At.IsZero() {
		return 0
	}
	return max(0, s.mu.freshest.Sub(e.At))
}

// Away returns why records cannot be written and read now; nil: they can.
func (s *Sync) Away() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.why
}

// Stats counts swaps since the start.
type Stats struct {
	Written, Refused, Failed int64
	Age                      time.Duration // since the own beat has come back last
}

// Stats returns what has been counted.
func (s *Sync) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{Written: s.stats.written.Load(), Refused: s.stats.refused.Load(), Failed: s.stats.failed.Load()}
	if !s.mu.seen.IsZero() {
		st.Age = time.Since(s.mu.seen)
	}
	return st
}

// Start begins the first session, and returns when it has begun or after a while: then
// it is tried for ever. What waiting does not mend is returned as [ErrUnusable].
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

// Stop ends everything. What is on its way is not waited for; permits of this instance
// are free at once, if the bucket can be reached.
func (s *Sync) Stop() {
	if s.stop == nil {
		return
	}
	s.stop()
	s.ended.Wait()
}

// Touch has a key's Kind asked what to write, soon. While the bucket is away it does
// nothing: Join does.
func (s *Sync) Touch(letter, key string) { s.touch(bucketKey(letter, key)) }

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

// start lets a key be swapped. Its caller holds mu.
func (s *Sync) start(id string, st *keyState) {
	st.waiting, st.again = time.Time{}, false
	if ctx := s.mu.session; ctx != nil {
		s.swaps.Go(func() { s.swap(ctx, id, st) })
	}
}

// swap writes what there is for a key until there is nothing more, or it has to wait.
func (s *Sync) swap(ctx context.Context, id string, st *keyState) {
	letter, name, _ := parseKey(id)
	k := s.kinds[letter]
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

// write swaps one value. A mark of a deletion may have been purged since.
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

// own notes what this instance has written, unless the watch was faster.
func (s *Sync) own(id, name string, k Kind, e Entry) {
	s.mu.Lock()
	newer := s.mu.entries[id].Rev >= e.Rev
	if !newer {
		s.mu.entries[id] = e // without a time, which the watch will bring
	}
	s.mu.Unlock()
	if !newer {
		k.Learn(name, e)
	}
}

// rest ends the work for a key unless it was touched meanwhile.
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

// await has a key wait for the record that was there instead, unless it has come.
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

// bucketKey is the key in the bucket of one of a kind: keys are any bytes, those of a
// bucket are not.
func bucketKey(letter, key string) string {
	return letter + "." + base64.RawURLEncoding.EncodeToString([]byte(key))
}

func parseKey(id string) (letter, key string, ok bool) {
	letter, text, ok := strings.Cut(id, ".")
	raw, err := base64.RawURLEncoding.DecodeString(text)
	return letter, string(raw), ok && err == nil
}
