package sidecar

import "time"

// clock gives the time as Unix nanoseconds. Within one process it never goes
// back: it is the wall clock at the start plus the monotonic time since then,
// so that an operator who sets the clock back cannot stretch leases or delays.
type clock struct {
	start time.Time
	base  int64
	test  func() int64 // the time instead, unless nil
}

func newClock() clock {
	now := time.Now()
	return clock{start: now, base: now.UnixNano()}
}

// Now is the current time in Unix nanoseconds.
func (c clock) Now() int64 {
	if c.test != nil {
		return c.test()
	}
	return c.base + int64(time.Since(c.start))
}

// timestamp writes t (Unix nanoseconds) as fila shows times to people and
// clients: RFC 3339 in UTC with nanoseconds.
func timestamp(t int64) string { return string(appendTimestamp(nil, t)) }

func appendTimestamp(b []byte, t int64) []byte {
	return time.Unix(0, t).UTC().AppendFormat(b, time.RFC3339Nano)
}
