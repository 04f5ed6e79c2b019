package budget

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// delivery is one that is in flight.
type delivery struct {
	estimate, actual int64
	taken            uint64
	period           int64 // the start of its period
	lost             bool  // of a process that has ended: nobody reports its cost
}

func (d *delivery) under() int64 { return max(0, d.actual-d.estimate) }

// account is what the test knows of a period.
type account struct {
	spent int64 // costs that are known at the end: actual ones, and estimates where nobody reported
	total int64
	last  int64 // the underestimates in flight at the last Take
	lost  int64 // what crashes have forgotten
}

// world runs a ledger with a disk, crashes and a clock.
type world struct {
	t        *rapid.T
	terms    Terms
	l        *Ledger
	disk     *Record
	writes   []Booking // on their way, the oldest first
	now      int64
	moment   uint64
	flying   []*delivery
	accounts map[int64]*account
}

func (w *world) advance() *account {
	w.l.Advance(w.now, w.moment)
	s := w.l.State()
	a := w.accounts[s.Start]
	if a == nil {
		a = &account{total: w.terms.Amount}
		w.accounts[s.Start] = a
	}
	require.Less(w.t, w.now, s.End, "the period is not over")
	return a
}

func (w *world) inFlight(period int64) (under int64) {
	for _, d := range w.flying {
		if d.period == period {
			under += d.under()
		}
	}
	return under
}

func (w *world) request(cost int64) {
	if b, ok := w.l.NextBooking(cost); ok {
		w.writes = append(w.writes, b)
	}
}

func (w *world) land(n int, told bool) {
	for _, b := range w.writes[:n] {
		w.disk = &b.Record
		if told {
			w.l.Booked(b.Number, rapid.IntRange(0, 9).Draw(w.t, "disk") > 0, w.now)
		}
	}
	w.writes = w.writes[n:]
}

func (w *world) deliver() {
	a := w.advance()
	d := &delivery{
		estimate: rapid.Int64Range(1, 2000).Draw(w.t, "estimate"), actual: rapid.Int64Range(1, 4000).Draw(w.t, "actual"),
		taken: w.moment, period: w.l.State().Start,
	}
	if w.l.Opens(d.estimate) != 0 {
		w.request(d.estimate)
		return
	}
	w.l.Take(d.estimate)
	w.request(0)
	a.spent += d.estimate
	w.flying = append(w.flying, d)
	a.last = w.inFlight(d.period)
	require.LessOrEqual(w.t, w.l.used, w.disk.Booked, "what is taken is on disk")
}

func (w *world) finish() {
	w.advance()
	if len(w.flying) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.flying)-1).Draw(w.t, "which")
	d := w.flying[i]
	w.flying = append(w.flying[:i], w.flying[i+1:]...)
	a := w.accounts[d.period]
	switch how := rapid.SampledFrom([]string{"ack", "nack", "undo"}).Draw(w.t, "how"); {
	case how == "ack":
		a.spent += d.actual - d.estimate
		if d.lost {
			w.l.Overrun(d.under())
		} else {
			w.l.Correct(d.taken, d.actual-d.estimate)
		}
	case how == "undo" && !d.lost:
		a.spent -= d.estimate
		w.l.Undo(d.taken, d.estimate)
	}
}

// end replaces the process by the next one.
func (w *world) end(clean bool) {
	w.advance()
	if clean {
		w.land(len(w.writes), true)
		r := w.l.Record()
		w.disk = &r
	} else {
		w.land(rapid.IntRange(0, len(w.writes)).Draw(w.t, "writes that are on disk"), false)
		if w.disk != nil && w.accounts[w.disk.Start] != nil { // the period that may go on
			a := w.accounts[w.disk.Start]
			lost := max(a.lost, a.spent-w.disk.Booked)
			require.LessOrEqual(w.t, lost-a.lost, a.last, "a crash forgets underestimates alone")
			a.lost = lost
		}
	}
	w.writes = nil
	for _, d := range w.flying {
		d.lost = true
	}
	w.moment = 0
	w.l = New(w.terms, w.disk)
}

// In a thousand histories with crashes, takeovers, clean stops and clocks that are set, the costs of
// every period stay within the bound of the package comment.
func TestABudgetIsExceededByUnderestimatesAlone(t *testing.T) {
	zones := []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe"}
	check := func(t *rapid.T) {
		w := &world{t: t, accounts: make(map[int64]*account), now: rapid.Int64Range(0, int64(20*365*24*time.Hour)).Draw(t, "now") + 1_700_000_000e9}
		w.terms = Terms{Amount: rapid.Int64Range(1, 100_000).Draw(t, "amount"), Period: Period{rapid.SampledFrom([]Unit{Hour, Day, Week, Month}).Draw(t, "unit"), rapid.SampledFrom(zones).Draw(t, "zone")}}
		w.l = New(w.terms, nil)
		w.advance()
		step := func(d int64) {
			if d > 0 {
				w.moment += uint64(d)
			}
			w.now += d
			w.advance()
		}
		for range rapid.IntRange(50, 300).Draw(t, "steps") {
			switch rapid.IntRange(0, 19).Draw(t, "what") {
			default:
				w.deliver()
			case 10, 11, 12:
				w.finish()
			case 13, 14:
				w.land(rapid.IntRange(0, len(w.writes)).Draw(t, "writes"), true)
			case 15:
				w.end(rapid.Bool().Draw(t, "clean"))
				w.advance()
			case 16:
				step(rapid.Int64Range(0, int64(10*time.Minute)).Draw(t, "time"))
			case 17:
				step(rapid.Int64Range(-int64(50*24*time.Hour), int64(40*24*time.Hour)).Draw(t, "a clock that is set"))
			case 18:
				_, end := w.terms.Around(w.now)
				step(end - w.now - rapid.Int64Range(0, 2).Draw(t, "about the end"))
			case 19:
				a := w.advance()
				added := rapid.Int64Range(1, 5000).Draw(t, "top-up")
				w.writes = append(w.writes, w.l.TopUp(added))
				a.total += added
			}
		}
		for start, a := range w.accounts {
			require.LessOrEqual(t, a.spent, a.total+a.last+a.lost, "%s", time.Unix(0, start))
		}
	}
	for range 10 { // rapid checks 100 histories each time
		rapid.Check(t, check)
	}
}

var monthly = Terms{Amount: 64_000, Period: Period{Month, "Europe/Berlin"}, WarnAt: [MaxWarnings]int16{500, 800}}

const november = int64(1_795_000_000e9) // 18 November 2026

// makeDurable makes all bookings for a cost durable.
func makeDurable(t *testing.T, l *Ledger, cost int64) {
	t.Helper()
	b, ok := l.NextBooking(cost)
	require.True(t, ok)
	l.Booked(b.Number, true, 0)
}

func TestABookingIsAheadOfTheUse(t *testing.T) {
	l := New(monthly, nil)
	l.Advance(november, 5)
	require.EqualValues(t, Never, l.Opens(100))
	makeDurable(t, l, 100)
	require.Zero(t, l.Opens(100))
	_, ok := l.NextBooking(0)
	require.False(t, ok, "1,000 are booked")
	writes := 0
	for used := int64(0); used < 64_000; used += 100 {
		require.Zero(t, l.Opens(100))
		l.Take(100)
		if b, ok := l.NextBooking(0); ok {
			writes++
			l.Booked(b.Number, true, 0)
		}
	}
	require.Equal(t, int64(64_000), l.State().Used)
	require.InDelta(t, 128, writes, 32)
	_, end := monthly.Around(november)
	require.Equal(t, end, l.Opens(1))
	_, ok = l.NextBooking(1)
	require.False(t, ok)
	l.Booked(l.TopUp(500).Number, true, 0)
	require.Zero(t, l.Opens(500))
	require.Equal(t, end, l.Opens(501))
	l.Advance(end, 6)
	require.EqualValues(t, Never, l.Opens(1), "a new period, of which nothing is booked")
	require.Zero(t, l.State().Added)
}

// A cost belongs to the period of its delivery.
func TestCorrectionsOfAnEarlierPeriod(t *testing.T) {
	l := New(monthly, nil)
	_, end := monthly.Around(november)
	l.Advance(november, 5)
	makeDurable(t, l, 10_000)
	l.Take(1000)
	l.Advance(end, 9)
	makeDurable(t, l, 10_000)
	l.Take(2000)
	l.Correct(5, 500)
	l.Undo(5, 1000)
	require.Equal(t, int64(2000), l.State().Used)
	l.Correct(9, 500)
	require.Equal(t, int64(2500), l.State().Used)
	l.Undo(9, 2000)
	require.Equal(t, int64(500), l.State().Used)
}

func TestWarnings(t *testing.T) {
	l := New(monthly, nil)
	l.Advance(november, 5)
	makeDurable(t, l, 64_000)
	l.Take(31_999)
	require.Zero(t, l.Crossed())
	l.Take(1)
	require.EqualValues(t, 500, l.Crossed())
	require.Zero(t, l.Crossed(), "once")
	l.Take(32_000)
	require.EqualValues(t, 800, l.Crossed())
	r := l.Record()
	require.Equal(t, 2, r.Warned)
	again := New(monthly, &r)
	again.Advance(november, 5)
	require.Zero(t, again.Crossed(), "a restart does not warn again")
	l.TopUp(64_000)
	require.Zero(t, l.Crossed(), "half of it was warned of")
	l.Take(40_000)
	require.EqualValues(t, 800, l.Crossed(), "80% of what there is now")
}

func TestReset(t *testing.T) {
	l := New(monthly, nil)
	_, end := monthly.Around(november)
	l.Advance(end+1, 5) // the clock was wrong
	makeDurable(t, l, 64_000)
	l.Take(64_000)
	l.Advance(november, 6)
	require.Greater(t, l.Opens(1), end, "a period never begins again by itself")
	b := l.Reset(november, 7)
	l.Correct(5, 1000)
	require.Zero(t, l.State().Used)
	require.EqualValues(t, Never, l.Opens(1))
	l.Booked(b.Number, true, 0)
	require.Zero(t, l.Opens(1))
	require.Equal(t, end, l.State().End)
}

// A restart with another period does the same.
func TestNewTermsAtARestart(t *testing.T) {
	l := New(monthly, nil)
	l.Advance(november, 5)
	makeDurable(t, l, 30_000)
	l.Take(30_000)
	r := l.Record()
	daily := Terms{Amount: 40_000, Period: Period{Day, ""}}
	again := New(daily, &r)
	again.SetTerms(daily, november, 6)
	_, end := daily.Around(november)
	require.Equal(t, end, again.State().End)
	require.Equal(t, int64(30_000), again.State().Used)
}

// New terms keep what was used.
func TestNewTerms(t *testing.T) {
	l := New(monthly, nil)
	l.Advance(november, 5)
	makeDurable(t, l, 30_000)
	l.Take(30_000)
	daily := Terms{Amount: 40_000, Period: Period{Day, ""}}
	l.SetTerms(daily, november, 6)
	start, end := daily.Around(november)
	require.Equal(t, State{Terms: daily, Start: start, End: end, Used: 30_000}, l.State())
	require.EqualValues(t, Never, l.Opens(10_000), "the disk has the other period")
	makeDurable(t, l, 10_000)
	require.Zero(t, l.Opens(10_000))
	require.Equal(t, end, l.Opens(10_001))
	more := daily
	more.Amount = 50_000
	l.SetTerms(more, november, 6)
	require.EqualValues(t, Never, l.Opens(20_000))
	l.SetTerms(daily, november, 6)
	require.Equal(t, end, l.Opens(20_000))
}
