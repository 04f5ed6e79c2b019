package ownership

import "time"

// Behind measures how old what a follower has applied is, by when it first knew of
// records that it has not applied. The zero value is ready to use.
type Behind struct {
	samples []sample // heads by their times; none is older than behindFor
}

type sample struct {
	at   int64
	head uint64
}

// behindFor is how far back heads are kept: a copy that is further behind is that far
// behind at least.
const behindFor = int64(10 * time.Second)

// sampleEvery bounds how many heads are kept.
const sampleEvery = int64(100 * time.Millisecond)

// Sample takes in the newest record that is known and the newest that is applied, and
// when a record came last. It returns how far behind the copy is: the age of the first
// record that is not applied, or how long nothing came.
func (b *Behind) Sample(now int64, head, applied uint64, last int64) int64 {
	if n := len(b.samples); n == 0 || b.samples[n-1].head != head && now-b.samples[n-1].at >= sampleEvery {
		b.samples = append(b.samples, sample{now, head})
	}
	for len(b.samples) > 1 && (b.samples[0].head <= applied || now-b.samples[0].at > behindFor) {
		b.samples = b.samples[1:]
	}
	behind := now - last
	if head > applied && b.samples[0].head > applied {
		behind = max(behind, now-b.samples[0].at)
	}
	return behind
}
