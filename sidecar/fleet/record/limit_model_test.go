package record

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/budget"
)

// The model of limits: a bucket with one record, and instances that admit messages with what
// they have leased. The tests make the same moves in every order up to a depth, and at random
// for long. They check each admitted message against the bounds.

const ms = int64(time.Millisecond)

// lease is what an instance has leased.
type lease struct{ Tokens, Slots, At, Until int64 }

// party is an instance of the model.
type party struct {
	Name    string
	m       *Member
	skew    int64 // error of this host's clock
	wrong   int64 // error of the fleet's clock here
	off     int64 // known bound of that error
	Sole    bool
	Own     Level // while it is the only one
	Leases  []lease
	Permits int64
	Flying  int64
	Needs   bool // a message waits
	Write   *Limit
	Over    uint64
	Heard   *uint64 // pending reply
	written Limit
	Gone    bool // the bucket is unreachable
}

type sent struct {
	at   int64
	cost int64
}

// town is a state of the model.
type town struct {
	limits  throttle.Limits
	cost    int64
	rec     Limit
	rev     uint64
	now     int64
	parties []party
	Ghosts  []int64 // messages in flight of dead instances that are not known to be dead
	deaths  int
	cuts    int
	log     []sent
	spread  int64 // between the clocks
}

func (w *town) clone() *town {
	n := *w
	n.parties, n.log, n.Ghosts = slices.Clone(w.parties), slices.Clone(w.log), slices.Clone(w.Ghosts)
	for i := range n.parties {
		m := *w.parties[i].m
		m.returns = slices.Clone(m.returns)
		n.parties[i].m = &m
		n.parties[i].Leases = slices.Clone(n.parties[i].Leases)
	}
	return &n
}

func (w *town) key() string {
	key := fmt.Sprint(w.rec, w.rev, w.now, w.log, w.Ghosts, w.deaths, w.cuts)
	for i := range w.parties {
		p := &w.parties[i]
		heard, write := uint64(0), ""
		if p.Heard != nil {
			heard = *p.Heard + 1
		}
		if p.Write != nil {
			write = fmt.Sprint(*p.Write)
		}
		m := p.m
		key += fmt.Sprint("|", p.Name, p.Sole, p.Own, p.Leases, p.Permits, p.Flying, p.Needs, write, p.Over, heard, p.Gone,
			m.rev, m.came, m.number, m.own, m.returns, m.sent)
	}
	return key
}

func (w *town) host(p *party) int64    { return w.now + p.skew }
func (w *town) fleet(p *party) Reading { return Reading{w.now + p.wrong, p.off} }

func (w *town) live(name string) bool {
	for i := range w.parties {
		if w.parties[i].Name == name {
			return true
		}
	}
	return slices.Contains(w.names(), name)
}

// names returns the dead instances that are not known to be dead.
func (w *town) names() (names []string) {
	for i := range w.Ghosts {
		names = append(names, fmt.Sprint("ghost", w.deaths-len(w.Ghosts)+i))
	}
	return names
}

// read reads the fleet's clock with a round trip of up to twice most.
func (p *party) read(r *rand.Rand, most int64) {
	p.off = 1 + r.Int64N(most)>>r.IntN(10)
	p.wrong = r.Int64N(2*p.off+1) - p.off
}

func (w *town) env(p *party) LimitEnv {
	return LimitEnv{Reading: w.fleet(p), Since: 1 << 60, Limits: w.limits, Live: w.live}
}

// pass admits a message if the instance's knowledge allows it.
func (w *town) pass(p *party) bool {
	l := &w.limits
	if p.Sole {
		p.Own.settle(w.env(p))
		used := int64(0)
		for _, s := range p.Own.Slots {
			used += s.N
		}
		if l.Full() > 0 && p.Own.Tokens < w.cost || l.Limit > 0 && used >= l.Limit || l.Concurrency > 0 && p.Flying >= l.Concurrency {
			return false
		}
		p.Own.Tokens -= w.cost
		p.Own.Slots = append(slices.Clip(p.Own.Slots), Slot{w.fleet(p).Latest(), 1})
		return w.went(p)
	}
	tokens, slots := int64(0), int64(0)
	for _, c := range p.Leases {
		if c.Until > w.host(p) {
			tokens, slots = tokens+c.Tokens, slots+c.Slots
		}
	}
	if l.Full() > 0 && tokens < w.cost || l.Limit > 0 && slots < 1 || l.Concurrency > 0 && p.Flying >= p.Permits {
		return false
	}
	tokens, slots = w.cost, 1
	for i := range p.Leases {
		c := &p.Leases[i]
		if c.Until <= w.host(p) {
			continue // given back with the next write
		}
		t, s := min(tokens, c.Tokens), min(slots, c.Slots)
		c.Tokens, c.Slots, tokens, slots = c.Tokens-t, c.Slots-s, tokens-t, slots-s
	}
	return w.went(p)
}

func (w *town) went(p *party) bool {
	p.Flying++
	p.Needs = false
	w.log = append(w.log, sent{w.now, w.cost})
	return true
}

// check checks the last message against the bounds.
func (w *town) check(t require.TestingT) {
	if len(w.log) == 0 {
		return
	}
	l := &w.limits
	sum, count := int64(0), int64(0)
	for _, s := range slices.Backward(w.log) {
		if w.now-s.at > max(3000*ms, l.Window) {
			break // earlier ones were checked when they were admitted
		}
		sum += s.cost
		if l.Full() > 0 {
			most := max(l.Full(), w.cost) + l.Rate.Gives(w.now-s.at+int64(ChunkLife)+w.spread)
			if sum > most { // a call of require for each entry would take most of the time
				require.LessOrEqual(t, sum, most, "tokens in %d ms", (w.now-s.at)/ms)
			}
		}
		if w.now-s.at < l.Window {
			count++
		}
	}
	if l.Limit > 0 {
		require.LessOrEqual(t, count, l.Limit, "in a window")
	}
	if l.Concurrency > 0 {
		flying := int64(0)
		for i := range w.parties {
			flying += w.parties[i].Flying
		}
		for _, n := range w.Ghosts {
			flying += n
		}
		require.LessOrEqual(t, flying, l.Concurrency, "in flight")
	}
}

// send requests what the instance needs and gives the rest back.
func (w *town) send(p *party) bool {
	if p.Write != nil || p.Heard != nil || p.Gone {
		return false
	}
	host := w.host(p)
	sole, pressed := p.m.Sole(w.live)
	if sole && !pressed {
		if !p.Sole {
			p.Sole, p.Own, p.Leases = true, p.m.Regain(), nil
			return true
		}
		return false
	}
	if sole && p.Sole {
		p.Own.settle(w.env(p))
		p.m.HandOver(p.Own)
		p.Sole, p.Permits = false, p.Flying
	} else if sole && p.m.own == nil { // it has become the only one and did not hear the reply
		p.m.HandOver(p.m.rec.Level)
	}
	a := Ask{Hold: p.Permits, Waits: p.Needs}
	kept := p.Leases[:0]
	for _, c := range p.Leases {
		if c.Until-host <= int64(ChunkLife-GiveBackAfter) {
			p.m.GiveBack(Rest{c.Tokens, Slot{c.At, c.Slots}, c.Until})
		} else if c.Tokens >= w.cost || c.Slots > 0 {
			kept = append(kept, c)
		}
	}
	p.Leases = kept
	if p.Needs {
		a.Tokens, a.Slots, a.Cost = len(kept) == 0, len(kept) == 0, w.cost
		if p.Flying >= p.Permits {
			a.More = 1
		}
	}
	if !p.Needs || p.m.Hungry(w.fleet(p).Now, w.limits) {
		p.Permits = max(p.Flying, min(p.Permits, p.m.Fair(w.fleet(p).Now, w.limits)))
		if !p.Needs {
			p.Permits = p.Flying
		}
		a.Hold = p.Permits
	}
	next, over, _, ok := p.m.Swap(host, w.fleet(p), a, w.live, w.limits, 1)
	if ok {
		p.Write, p.Over = &next, over
	}
	return ok
}

func (w *town) land(p *party) bool {
	if p.Write == nil {
		return false
	}
	rev := uint64(0)
	if p.Over == w.rev {
		w.rev++
		rev, w.rec = w.rev, *p.Write
	}
	p.written, p.Write, p.Heard = *p.Write, nil, &rev
	return true
}

func (w *town) learn(p *party, rev uint64, rec Limit) {
	l, landed := p.m.Learn(w.host(p), rev, rec)
	if !landed {
		return
	}
	if l.Own != nil {
		p.Sole, p.Own, p.Leases = true, *l.Own, nil
		return
	}
	if l.Tokens > 0 || l.Slots.N > 0 {
		p.Leases = append(p.Leases, lease{l.Tokens, l.Slots.N, l.Slots.At, l.At + int64(ChunkLife)})
	}
	p.Permits = max(p.Flying, l.Permits)
}

func (w *town) hear(p *party) bool {
	if p.Heard == nil || p.Gone {
		return false
	}
	rev := *p.Heard
	p.Heard = nil
	if rev != 0 {
		w.learn(p, rev, p.written)
	}
	return true
}

func (w *town) watch(p *party) bool {
	if p.Gone || p.m.rev == w.rev {
		return false
	}
	w.learn(p, w.rev, w.rec)
	return true
}

// die replaces a party by a new one. A pending write may still land.
func (w *town) die(p *party, most int) bool {
	if w.deaths >= most {
		return false
	}
	if p.Write != nil {
		w.land(p)
	}
	// The dead instance stays in the record under a ghost name until it is buried.
	ghost := fmt.Sprint("ghost", w.deaths)
	rename := func(l *Limit) {
		u, ok := l.Users[p.Name]
		if !ok {
			return
		}
		c := *l
		c.Users = make(map[string]User)
		for name, user := range l.Users {
			if name != p.Name {
				c.Users[name] = user
			}
		}
		c.Users[ghost] = u
		if c.Owner == p.Name {
			c.Owner = ghost
		}
		*l = c
	}
	rename(&w.rec)
	for i := range w.parties {
		o := &w.parties[i]
		rename(&o.m.rec)
		rename(&o.written)
		if o.Write != nil && o != p {
			rename(o.Write)
		}
	}
	w.Ghosts = append(w.Ghosts, p.Flying)
	w.deaths++
	*p = party{Name: p.Name, m: NewMember(p.Name), skew: -p.skew, wrong: p.wrong, off: p.off, Needs: true}
	p.m.Join(w.host(p), 0, w.rev, w.rec)
	return true
}

func (w *town) bury() bool {
	if len(w.Ghosts) == 0 {
		return false
	}
	w.Ghosts = w.Ghosts[1:]
	return true
}

func (w *town) cut(p *party, most int) bool {
	if p.Gone || w.cuts >= most {
		return false
	}
	w.cuts++
	p.Gone, p.Heard = true, nil
	p.Leases = nil
	return true
}

func (w *town) mend(p *party) bool {
	if !p.Gone || p.Write != nil {
		return false
	}
	p.Gone = false
	p.m.Join(w.host(p), 0, w.rev, w.rec)
	if p.m.rec.Owner != p.Name {
		p.Sole, p.Permits = false, p.Flying
	}
	return true
}

func newTown(l throttle.Limits, skews ...int64) *town {
	w := &town{limits: l, cost: throttle.One, now: 100 * 1000 * ms}
	for i, skew := range skews {
		name := string(rune('a' + i))
		p := party{Name: name, m: NewMember(name), skew: skew, Needs: true}
		w.parties = append(w.parties, p)
	}
	return w
}

// townMove is a move of the model.
type townMove struct {
	name string
	do   func(w *town, p *party) bool
}

func townMoves(deaths, cuts int, step int64, until int64) []townMove {
	return []townMove{
		{"pass", func(w *town, p *party) bool { return w.pass(p) }},
		{"need", func(_ *town, p *party) bool { ok := !p.Needs; p.Needs = true; return ok }},
		{"end", func(_ *town, p *party) bool { p.Flying--; return p.Flying >= 0 }},
		{"swap", func(w *town, p *party) bool { // a whole write with nothing between
			w.watch(p)
			return w.send(p) && w.land(p) && w.hear(p)
		}},
		{"send", (*town).send},
		{"land", (*town).land},
		{"hear", (*town).hear},
		{"watch", (*town).watch},
		{"die", func(w *town, p *party) bool { return w.die(p, deaths) }},
		{"bury", func(w *town, _ *party) bool { return w.bury() }},
		{"cut", func(w *town, p *party) bool { return w.cut(p, cuts) }},
		{"mend", (*town).mend},
		{"wait", func(w *town, _ *party) bool { w.now += step; return w.now <= until }},
	}
}

// everyWay makes all moves in all orders, and returns the number of states.
func everyWay(t *testing.T, start *town, all []townMove, depth int) int {
	t.Helper()
	type node struct {
		*town
		path []string
	}
	seen := map[string]bool{start.key(): true}
	layer := []node{{start, nil}}
	for range depth {
		var next []node
		for _, n := range layer {
			for _, d := range all {
				for i := range n.parties {
					w := n.clone()
					if !d.do(w, &w.parties[i]) {
						continue
					}
					k := w.key()
					if seen[k] {
						continue
					}
					seen[k] = true
					path := append(slices.Clip(n.path), fmt.Sprint(w.parties[i].Name, " ", d.name))
					w.check(&journey{t, path})
					next = append(next, node{w, path})
				}
			}
		}
		layer = next
	}
	return len(seen)
}

// sharedTown returns a state in which two instances share and nothing is pending.
func sharedTown(t *testing.T, l throttle.Limits) *town {
	w := newTown(l, 5000*ms, -5000*ms)
	for range 3 {
		for i := range w.parties {
			p := &w.parties[i]
			p.Needs = false
			for _, do := range []func(*town, *party) bool{(*town).watch, (*town).send, (*town).land, (*town).hear} {
				do(w, p)
			}
		}
	}
	for i := range w.parties {
		w.watch(&w.parties[i])
		w.parties[i].Needs = true
	}
	require.Empty(t, w.rec.Owner)
	require.Len(t, w.rec.Users, 2)
	w.now += 1000 * ms
	return w
}

var (
	modelRate   = throttle.Limits{Rate: throttle.PerSecond(20 * throttle.One), Burst: throttle.One}
	modelWindow = throttle.Limits{Limit: 1, Window: 300 * ms}
	modelPlaces = throttle.Limits{Concurrency: 1}
)

// depth returns the number of moves to explore: deep with -model.deep, else one or two less.
func depth(deep int) int {
	if *flagDeep {
		return deep
	}
	return deep - max(1, deep/7)
}

func TestModelOfLimits(t *testing.T) {
	for name, l := range map[string]throttle.Limits{"rate": modelRate, "window": modelWindow, "concurrency": modelPlaces} {
		t.Run(name, func(t *testing.T) {
			fresh := newTown(l, 0, 0)
			n := everyWay(t, fresh, townMoves(0, 0, 100*ms, fresh.now+300*ms), depth(7))
			n += everyWay(t, fresh, townMoves(1, 1, 100*ms, fresh.now+300*ms), depth(6))
			both := sharedTown(t, l)
			n += everyWay(t, both, townMoves(0, 0, 100*ms, both.now+300*ms), depth(6))
			n += everyWay(t, both, townMoves(1, 1, 100*ms, both.now+300*ms), depth(6))
			apart := sharedTown(t, l)
			apart.spread = 600 * ms
			for i, wrong := range []int64{300 * ms, -300 * ms} {
				apart.parties[i].wrong, apart.parties[i].off = wrong, 300*ms
			}
			n += everyWay(t, apart, townMoves(1, 1, 100*ms, apart.now+1300*ms), depth(6))
			t.Log(n, "towns")
		})
	}
}

var (
	flagDeep  = flag.Bool("model.deep", false, "explore the models as deep as CI does with --all")
	flagSeeds = flag.Int("fila.seeds", 10, "number of histories of each kind in the test of random histories of limits")
	flagSeed  = flag.Uint64("fila.seed", 1, "first seed; 0 takes a random one")
)

// TestLimitsByChance: four instances, hosts with clocks that are wrong by up to 5 s, readings
// of the fleet's clock with large and small errors, lost replies, and deaths with permits.
func TestLimitsByChance(t *testing.T) {
	kinds := []throttle.Limits{
		{Rate: throttle.PerSecond(100 * throttle.One), Burst: 10 * throttle.One},
		{Rate: throttle.PerSecond(throttle.One), Burst: 3 * throttle.One},
		{Limit: 20, Window: 1000 * ms},
		{Concurrency: 5},
		{Rate: throttle.PerSecond(30 * throttle.One), Limit: 10, Window: 500 * ms, Concurrency: 4},
	}
	first := *flagSeed
	if first == 0 {
		first = rand.Uint64N(1 << 40)
	}
	t.Logf("-fila.seed=%d -fila.seeds=%d", first, *flagSeeds)
	went := make([]int, len(kinds))
	for _, wrong := range []int64{25 * ms, 5000 * ms} {
		for seed := first; seed < first+uint64(*flagSeeds); seed++ {
			for k, l := range kinds {
				r := rand.New(rand.NewPCG(seed, uint64(k)))
				skew := func() int64 { return r.Int64N(10_000*ms) - 5000*ms }
				w := newTown(l, skew(), skew(), skew(), skew())
				w.spread = 2 * wrong
				for i := range w.parties {
					w.parties[i].read(r, wrong)
				}
				if seed%2 == 0 {
					w.cost = 1 + r.Int64N(2*throttle.One)
				}
				on := &journey{t, []string{fmt.Sprint("seed ", seed, " limits ", k, " wrong ", wrong)}}
				w.wander(on, r, 4000, wrong)
				went[k] += len(w.log)
			}
		}
	}
	t.Log("messages by limits:", went)
	for k, n := range went {
		require.Greater(t, n, 100, "limits %d are never used", k)
	}
}

// wander makes random moves.
func (w *town) wander(t require.TestingT, r *rand.Rand, steps int, wrong int64) {
	all := townMoves(1<<30, 1<<30, 0, 1<<62)
	for range steps {
		p := &w.parties[r.IntN(len(w.parties))]
		d := all[r.IntN(len(all))]
		if r.IntN(200) == 0 {
			p.read(r, wrong)
		}
		switch {
		case d.name == "die" && r.IntN(20) > 0 || d.name == "cut" && r.IntN(10) > 0 || d.name == "end" && (p.Flying == 0 || r.IntN(4) > 0):
			continue
		case d.name == "bury" && r.IntN(5) > 0:
			continue
		case d.name == "wait":
			w.now += r.Int64N(20 * ms)
			continue
		case d.name == "pass" && !p.Needs:
			continue
		}
		d.do(w, p)
		w.check(t)
		if horizon := w.now - 20_000*ms; len(w.log) > 0 && w.log[0].at < horizon {
			w.log = w.log[1:]
		}
	}
}

// TestLimitsAreUsed: four instances that always need more use the whole limit in equal shares
// when nothing fails.
func TestLimitsAreUsed(t *testing.T) {
	for name, tc := range map[string]struct {
		limits throttle.Limits
		want   int64 // in 10 s
	}{
		"fast":   {throttle.Limits{Rate: throttle.PerSecond(400 * throttle.One), Burst: 40 * throttle.One}, 4000},
		"slow":   {throttle.Limits{Rate: throttle.PerSecond(4 * throttle.One), Burst: 4 * throttle.One}, 40},
		"window": {throttle.Limits{Limit: 100, Window: 1000 * ms}, 800},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTown(tc.limits, 0, 5000*ms, -5000*ms, 2000*ms)
			count := make([]int64, len(w.parties))
			for range 10_000 {
				w.now += ms
				for i := range w.parties {
					p := &w.parties[i]
					p.Needs = true
					for w.pass(p) {
						count[i]++
						p.Needs = true
						w.check(t)
					}
					_ = w.watch(p) || w.land(p) || w.hear(p) || w.send(p)
				}
			}
			sum, least := int64(0), count[0]
			for _, n := range count {
				sum, least = sum+n, min(least, n)
			}
			t.Log(count, sum)
			require.GreaterOrEqual(t, sum, tc.want*9/10)
			require.GreaterOrEqual(t, least, tc.want/4*7/10, "an instance starves: %v", count)
		})
	}
}

// TestSlotsAreSharedFairly, although one instance asks ten times as often as the other, and
// slots return one by one.
func TestSlotsAreSharedFairly(t *testing.T) {
	w := newTown(throttle.Limits{Limit: 100, Window: 1300 * ms}, 5000*ms, -5000*ms)
	count := make([]int64, len(w.parties))
	for i := range int64(30_000) {
		w.now += ms
		for k := range w.parties {
			p := &w.parties[k]
			p.Needs = i >= 1500 || k == 0 && i%13 == 0
			for p.Needs && w.pass(p) {
				if i >= 3000 {
					count[k]++
				}
				p.Needs = i >= 1500
				w.check(t)
			}
			if k == 0 || i%10 == 0 {
				w.watch(p)
				_ = w.send(p) && w.land(p) && w.hear(p)
			}
		}
		w.log = slices.DeleteFunc(w.log, func(s sent) bool { return w.now-s.at > 3000*ms })
	}
	t.Log(count)
	require.Greater(t, count[0]+count[1], int64(27*100/13*10*7/10))
	require.Greater(t, 10*count[1], 8*count[0], "who asks less often gets as much")
}

func TestLimitRecordRoundTrip(t *testing.T) {
	l := Limit{
		Owner: "a/1", Users: map[string]User{"a/1": {Seen: 3, Asks: 4, Wants: 9, Given: 5, Leased: 8, Permits: 6}, "b/2": {}},
		Level: Level{Used: true, Tokens: -5, At: 7, Slots: []Slot{{8, 9}, {10, 1}}},
		Terms: Terms[throttle.Limits]{throttle.Limits{Rate: throttle.PerSecond(5), Burst: 6000, Limit: 7, Window: 8, Concurrency: 9}, 10, "c/3"},
	}
	back, err := DecodeLimit(l.Encode())
	require.NoError(t, err)
	require.Equal(t, l, back)
	l.Terms.Limits.Budget = budget.Terms{Amount: 5, Period: budget.Period{Unit: budget.Day, Zone: "Europe/Berlin"}, WarnAt: [budget.MaxWarnings]int16{800}}
	l.Terms.Limits.OnEmpty = throttle.Refuse
	back, err = DecodeLimit(l.Encode())
	require.NoError(t, err)
	require.Equal(t, l, back)
	require.Contains(t, string(l.Encode()), `"v":2,`, "a fila that does not know budgets does not read it")
	var fields map[string]any
	require.NoError(t, json.Unmarshal(l.Encode(), &fields))
	for name, text := range map[string]string{
		"version":      `{"v":0}`,
		"owner":        `{"v":1,"owner":"x"}`,
		"permits":      `{"v":1,"users":{"x":{"permits":-1}}}`,
		"slots":        `{"v":1,"slots":[{"at":2,"n":1},{"at":1,"n":1}]}`,
		"empty slot":   `{"v":1,"slots":[{"at":2,"n":0}]}`,
		"tokens":       `{"v":1,"tokens":9000000000000000000}`,
		"time":         `{"v":1,"at":-1}`,
		"limits":       `{"v":1,"limits":[1,0,0,0,0,0],"limits_by":"x"}`,
		"whose limits": `{"v":1,"limits":[0,0,0,0,0,1]}`,
		"not a record": `[]`,
	} {
		_, err := DecodeLimit([]byte(text))
		require.Error(t, err, name)
		require.NotErrorIs(t, err, ErrVersion, name)
	}
	_, err = DecodeLimit([]byte(`{"v":3}`))
	require.ErrorIs(t, err, ErrVersion)
}

// TestRestOfAnEndedLease: an ended lease is given back without the tokens that have refilled
// since, which would count twice. Of a slow rate nearly all is given back, however late.
func TestRestOfAnEndedLease(t *testing.T) {
	for name, tc := range map[string]struct{ after, want int64 }{
		"in time":     {int64(ChunkLife) - 1, 1500},
		"late":        {int64(ChunkLife), 1500 - 201},
		"a second on": {1150 * ms, 1500 - 1201},
		"too late":    {1500 * ms, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := throttle.Limits{Rate: throttle.PerSecond(throttle.One), Burst: 2 * throttle.One}
			now := 1000 * ms
			m := NewMember("a")
			m.Learn(now, 1, Limit{Users: map[string]User{"a": {}, "b": {Asks: now + 10_000*ms}}, Level: Level{Used: true, Tokens: 0, At: now}})
			m.GiveBack(Rest{Tokens: 1500, Until: now + int64(ChunkLife)})
			now += tc.after
			next, _, _, _ := m.Swap(now, Reading{Now: now}, Ask{}, everybody, l, 1)
			flowed := l.Rate.Gives(tc.after)
			require.Equal(t, min(tc.want+flowed, l.Burst), next.Tokens)
		})
	}
}

// TestSlotsThatHaveLeftTheWindow are not given back again: the slots in the record then are
// leased by others.
func TestSlotsThatHaveLeftTheWindow(t *testing.T) {
	l := throttle.Limits{Limit: 4, Window: 1000 * ms}
	for name, tc := range map[string]struct{ after, want int64 }{
		"in the window": {500 * ms, 2},
		"too late":      {3000 * ms, 4},
	} {
		t.Run(name, func(t *testing.T) {
			leased := 10_000 * ms
			rec := Limit{
				Users: map[string]User{"a": {}, "b": {}}, Terms: Terms[throttle.Limits]{l, 1, "b"},
				Level: Level{Used: true, At: leased, Slots: []Slot{{leased, 2}, {leased + 400*ms, 2}}},
			}
			now := leased + tc.after
			if tc.after > l.Window {
				rec.Slots = []Slot{{now - 100*ms, 4}} // of b
			}
			m := NewMember("a")
			m.Learn(now, 1, rec)
			m.GiveBack(Rest{Slots: Slot{At: leased, N: 2}, Until: leased + int64(ChunkLife)}) // a refused write has waited
			next, _, _, _ := m.Swap(now, Reading{Now: now}, Ask{}, everybody, l, 1)
			sum := int64(0)
			for _, s := range next.Slots {
				sum += s.N
			}
			require.Equal(t, tc.want, sum)
		})
	}
}
