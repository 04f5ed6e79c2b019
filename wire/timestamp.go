package wire

import (
	"fmt"
	"time"
)

// Timestamp formats t (Unix nanoseconds) as RFC 3339 in UTC with nanoseconds.
func Timestamp(t int64) string { return string(AppendTimestamp(nil, t)) }

// AppendTimestamp appends Timestamp(t) to b.
func AppendTimestamp(b []byte, t int64) []byte {
	return time.Unix(0, t).UTC().AppendFormat(b, time.RFC3339Nano)
}

// FormatMs prints milliseconds as a duration without zero units: 5m, not 5m0s.
func FormatMs(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d == 0:
		return "0s"
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0 && d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}
