package wire

import "time"

// Timestamp formats t (Unix nanoseconds) as RFC 3339 in UTC with nanoseconds.
func Timestamp(t int64) string { return string(AppendTimestamp(nil, t)) }

// AppendTimestamp appends Timestamp(t) to b.
func AppendTimestamp(b []byte, t int64) []byte {
	return time.Unix(0, t).UTC().AppendFormat(b, time.RFC3339Nano)
}
