package terminal

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Columns are aligned for cells of any width.
func TestTableOfWideText(t *testing.T) {
	table := NewTable("QUEUE", "PENDING", "SIZE")
	table.Row("orders", 1, "5 B")
	table.Row("注文", 22, "")
	table.Row("🚀 rocket", 3, "7 B")
	table.Row("한국어 ключ é", 4, "8 B")
	table.Row("\u202egnp.exe\u2069", 5, "9 B") // what turns the direction of text is seen
	require.Equal(t, strings.Join([]string{
		"QUEUE          PENDING  SIZE",
		"orders         1        5 B",
		"注文           22",
		"🚀 rocket      3        7 B",
		"한국어 ключ é  4        8 B",
		"?gnp.exe?      5        9 B",
		"",
	}, "\n"), table.String())
}

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[float64]string{
		-1: "-", 0: "0", 0.04: "0.0", 1.5: "1.5", 9.96: "10", 9999: "9999", 10_000: "10.0k", 99_949: "99.9k", 123_456: "123k", 999_499: "999k",
		1e6: "1.0M", 5e12: "5.0T", 1e30: "lots",
	} {
		require.Equal(t, want, Short(n), n)
		require.LessOrEqual(t, len(Short(n)), 5)
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", -999: "-999", 1234567: "1,234,567"} {
		require.Equal(t, want, Grouped(n))
	}
	for _, tc := range []struct {
		text  string
		width int
		want  string
	}{
		{"abcd", 0, ""},
		{"abcd", 1, "~"},
		{"abcd", 3, "ab~"},
		{"abcd", 4, "abcd"},
		{"日本語", 6, "日本語"},
		{"日本語", 5, "日本~"},
		{"日本語", 4, "日~"},
		{"日本", 2, "~"},
		{"🚀🚀", 3, "🚀~"},
	} {
		require.Equal(t, tc.want, Fit(tc.text, tc.width), tc)
	}
}
