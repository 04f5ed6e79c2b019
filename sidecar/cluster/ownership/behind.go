package ownership

import "time"

// Behind measures how far a follower is behind: how long ago it learned of the oldest record that
// it has not applied. The zero value is ready to use.
type Behind struct {
	samples []sample // heads by time, none older than behindFor
}

type sample struct {
	at   int64
	head uint64
}

// behindFor is how long heads are kept. A copy that is further behind is reported as being so far
// behind.
const behindFor = int64(10 * time.Second)

// sampleEvery limits how many heads are kept.
const sampleEvery = int64(100 * time.Millisecond)

// Sample records the newest known record and the newest applied one; last is when a record came.
// It returns how far behind the copy is: the age of the first unapplied record, or how long
// nothing has come.
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
