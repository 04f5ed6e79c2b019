package fingerprint

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// TestNormalise: what differs each time is a sign, and the words stay.
func TestNormalise(t *testing.T) {
	for text, want := range map[string]string{
		"":                                                   "",
		"  lease \n\t expired ":                              "lease expired",
		"card declined":                                      "card declined",
		"can't open 'a b', don't ask":                        "can't open <text>, don't ask",
		`unknown field "amount" in line 17`:                  "unknown field <text> in line #",
		"the column `x` is 'y\\'z'":                          "the column <text> is <text>",
		`it's 5" long`:                                       `it's #" long`,
		`she said "hello`:                                    `she said "hello`,
		"timeout after 1500ms":                               "timeout after #",
		"timeout after 1.5s (try 3 of 10)":                   "timeout after # (try # of #)",
		"dial tcp 10.0.0.17:5432: i/o timeout":               "dial tcp #: i/o timeout",
		"2024-01-02T03:04:05.678Z worker gone":               "# worker gone",
		"no order order-1234 of customer_77":                 "no order order-# of customer_#",
		"order42 not found":                                  "order# not found",
		"x509: certificate has expired":                      "x#: certificate has expired",
		"no such user 01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80.": "no such user <id>.",
		"commit deadbeefcafe, and da39a3ee5e6b4b0d3255bfef95601890afd80709": "commit <id>, and <id>",
		"at 0x7fff12 in goroutine 5":                                        "at <id> in goroutine #",
		"mail to jane.doe@example.com failed":                               "mail to <id> failed",
		"token V1StGXR8_Z5jdHi6B-myT is unknown":                            "token <id> is unknown",
		"open /var/lib/x/17.db: no such file":                               "open <path>: no such file",
		`open C:\temp\a.txt: denied`:                                        "open <path>: denied",
		"GET https://api.example.com/v1/orders/17?x=y: 503":                 "GET <path>=y: #",
		"HTTP 404 from upstream":                                            "HTTP 404 from upstream",
		"HTTP 500 from upstream":                                            "HTTP 500 from upstream",
		"HTTP/1.1 503 Service Unavailable":                                  "<path> 503 Service Unavailable",
		"HTTP404 and status:429":                                            "HTTP404 and status:429",
		"429 Too Many Requests, retry in 30 s":                              "429 Too Many Requests, retry in # s",
		" 503: upstream":                                                    "503: upstream",
		"statusCode=503 http_status=404 code: 429.":                         "statusCode=503 http_status=404 code: 429.",
		`{"code": 503,"n":503}`:                                             `{<text>: 503,<text>:#}`,
		"status 999, HTTP 4040, code 42, code 5xx":                          "status #, HTTP #, code #, code #",
		"barcode 503, unicode233, zip 503":                                  "barcode #, unicode#, zip #",
		"503ms passed":                                                      "# passed",
		"404-17 is no status":                                               "# is no status",
		"try 503 of 504":                                                    "try # of #",
		"panic in src/main.go:42, not in a/b":                               "panic in <path>, not in a/b",
		"want application/json, got text/html":                              "want application/json, got text/html",
		"ids 1, 2, 3 are gone":                                              "ids # are gone",
		"ids 1, 2 are gone":                                                 "ids # are gone",
		"rate is 99.5%":                                                     "rate is #%",
		"key=17 other=a":                                                    "key=# other=a",
		`{"code":17,"why":"no money"}`:                                      `{<text>:#,<text>:<text>}`,
		"Überweisung 17 schlug fehl":                                        "Überweisung # schlug fehl",
		"a-very-long-name-of-a-thing-2":                                     "a-very-long-name-of-a-thing-#",
		"...":                                                               "...",
		"/":                                                                 "/",
	} {
		require.Equal(t, want, Normalise(text), text)
		require.Equal(t, Normalise(want), Normalise(Normalise(want)), "signs stay signs: %s", text)
	}
	require.LessOrEqual(t, len(Normalise(strings.Repeat("a ", MaxText))), MaxText)
}

// TestOf: each part counts, and where one ends.
func TestOf(t *testing.T) {
	names := map[string]bool{}
	for _, parts := range [][3]string{{"a", "b", "c"}, {"ab", "", "c"}, {"a", "", "bc"}, {"", "", ""}, {"a", "b", "d"}, {"b", "b", "c"}} {
		name := Of(parts[0], parts[1], parts[2])
		require.Len(t, name, 16)
		require.False(t, names[name])
		names[name] = true
		require.Equal(t, name, Of(parts[0], parts[1], parts[2]))
	}
	require.Equal(t, "", strings.Trim(Of("orders", "402", "card declined"), "0123456789abcdef"))
}

func FuzzNormalise(f *testing.F) {
	for _, seed := range []string{"", "a 1 'b' /c", "0x", "~", "a@b", `\`, "..1", "a--1", "1,1 , 1", "'''", "é1é"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := Normalise(text)
		require.Equal(t, got, Normalise(text))
		require.NotContains(t, got, "  ")
		require.LessOrEqual(t, len(got), 6*MaxText)
		for _, number := range strings.FieldsFunc(got, func(c rune) bool { return c < '0' || c > '9' }) {
			require.True(t, isStatus(number), "no number is left but a status: %q", number)
		}
		if utf8.ValidString(text) && len(text) <= MaxText {
			require.True(t, utf8.ValidString(got))
		}
	})
}

func BenchmarkNormalise(b *testing.B) {
	text := "dial tcp 10.0.0.17:5432: connection refused after 1500ms, order 01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80"
	for b.Loop() {
		Of("orders", "", Normalise(text))
	}
}
