package wire

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Timestamp formats t (Unix nanoseconds) as RFC 3339 in UTC with nanoseconds.
func Timestamp(t int64) string { return string(AppendTimestamp(nil, t)) }

// AppendTimestamp appends Timestamp(t) to b.
func AppendTimestamp(b []byte, t int64) []byte {
	return time.Unix(0, t).UTC().AppendFormat(b, time.RFC3339Nano)
}

// FormatMs prints milliseconds as a duration without zero units at its end: 5m, not 5m0s.
func FormatMs(ms int64) string {
	text := (time.Duration(ms) * time.Millisecond).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Span prints a duration for a sentence, in the one or two units that matter: 5.3 s, 20 min.
func Span(d time.Duration) string {
	switch {
	case d <= 0:
		return "0 s"
	case d < time.Second:
		return strconv.FormatInt(max(d.Milliseconds(), 1), 10) + " ms"
	case d < 10*time.Second && d%time.Second != 0:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d < 2*time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min"
	case d < 48*time.Hour && int(d.Minutes())%60 == 0:
		return strconv.Itoa(int(d.Hours())) + " h"
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return strconv.Itoa(int(d.Hours()/24)) + " days"
}

// Grouped prints an integer in groups of three digits: 40,000.
func Grouped(n int64) string {
	text, sign := strconv.FormatInt(n, 10), ""
	if n < 0 {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}
