package deadletter

import (
	"cmp"
	"slices"
	"sync"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire/api"
)

const (
	// ratedMinutes is for how many minutes Rates counts.
	ratedMinutes = api.MaxDeadRateMinutes
	// ratedGroups is how many groups Rates counts; messages of further ones are others.
	ratedGroups = api.MaxDeadRates
	// ratedTexts is how many error texts Rates remembers.
	ratedTexts = 64

	minuteNs = int64(60e9)
)

// Rates counts the messages of a queue that become dead letters, by group and minute, for an
// hour. It has up to 64 groups, each of 240 bytes and its error text, and remembers up to 64
// error texts: at most 256 KB a queue, and nothing before its first dead letter. The counts
// begin anew with the process. The zero value is empty.
type Rates struct {
	mu     sync.Mutex
	texts  normaliser
	groups map[key]*perMinute
	others perMinute
}

// perMinute has counts of the last hour.
type perMinute struct {
	last int64                // Unix minute up to which n is valid
	n    [ratedMinutes]uint32 // by minute, modulo ratedMinutes
}

// add counts one in a minute. Minutes that are older than an hour mean that the clock was set
// back: the counts begin anew.
func (p *perMinute) add(minute int64) {
	if minute <= p.last-ratedMinutes || minute >= p.last+ratedMinutes {
		*p = perMinute{last: minute}
	}
	for p.last < minute {
		p.last++
		p.n[p.last%ratedMinutes] = 0
	}
	p.n[minute%ratedMinutes]++
}

// until returns the counts of minutes that end with this one, and their sum.
func (p *perMinute) until(minute int64, minutes int) (counts []int64, sum int64) {
	counts = make([]int64, minutes)
	for i := range counts {
		at := minute - int64(minutes-1-i)
		if at <= p.last && at > p.last-ratedMinutes && at >= 0 {
			counts[i] = int64(p.n[at%ratedMinutes])
			sum += counts[i]
		}
	}
	return counts, sum
}

// Add counts a message that has become a dead letter.
func (r *Rates) Add(d *store.Dead, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.groups == nil || len(r.texts) >= ratedTexts {
		r.texts = make(normaliser)
	}
	if r.groups == nil {
		r.groups = make(map[key]*perMinute)
	}
	minute, k := now/minuteNs, r.texts.keyOf(d)
	g := r.groups[k]
	if g == nil {
		if len(r.groups) >= ratedGroups {
			r.forget(minute)
		}
		if g = &r.others; len(r.groups) < ratedGroups {
			g = new(perMinute)
			r.groups[k] = g
		}
	}
	g.add(minute)
}

// forget removes the groups without a dead letter in the last hour.
func (r *Rates) forget(minute int64) {
	for k, g := range r.groups {
		if _, sum := g.until(minute, ratedMinutes); sum == 0 {
			delete(r.groups, k)
		}
	}
}

// AddTo adds the counts of the minutes of reply, of which the last one is the minute of now.
func (r *Rates) AddTo(reply *api.DeadRates, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	minute, minutes := now/minuteNs, len(reply.Other)
	for k, g := range r.groups {
		if counts, sum := g.until(minute, minutes); sum > 0 {
			reply.Groups = append(reply.Groups, api.DeadRate{
				Group: k.id(), SourceQueue: k.source, ErrorCode: k.code, Error: k.text, Messages: sum, Minutes: counts,
			})
			reply.Messages += sum
		}
	}
	counts, sum := r.others.until(minute, minutes)
	reply.Messages += sum
	addCounts(reply.Other, counts)
}

func addCounts(to, counts []int64) {
	for i, n := range counts[:min(len(counts), len(to))] {
		to[i] += n
	}
}

// Join adds the counts of another node, part. The first minute of all is later minutes after the
// first one of part.
func Join(all, part *api.DeadRates, later int) {
	shift := func(counts []int64) []int64 {
		moved := make([]int64, len(all.Other))
		for i := range moved {
			if at := i + later; at >= 0 && at < len(counts) {
				moved[i] = counts[at]
			}
		}
		return moved
	}
	for i := range part.Groups {
		part.Groups[i].Minutes = shift(part.Groups[i].Minutes)
	}
	addCounts(all.Other, shift(part.Other))
	all.Groups = append(all.Groups, part.Groups...)
	all.Messages += part.Messages
	all.Total += part.Total - len(part.Groups) // Largest counts the others
}

// Largest sorts the groups of reply, the one with the most messages first, and counts all beyond
// limit as others.
func Largest(reply *api.DeadRates, limit int) {
	slices.SortFunc(reply.Groups, func(a, b api.DeadRate) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Group, b.Group))
	})
	reply.Total += len(reply.Groups)
	for i := limit; i < len(reply.Groups); i++ {
		addCounts(reply.Other, reply.Groups[i].Minutes)
	}
	reply.Groups = reply.Groups[:min(len(reply.Groups), limit)]
}
