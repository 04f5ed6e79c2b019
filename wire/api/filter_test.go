package api

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

var filterNow = time.Date(2030, 5, 6, 7, 8, 9, 10, time.UTC)

// TestFilters: accepted filters, in the form in which they are stored.
func TestFilters(t *testing.T) {
	for body, want := range map[string]string{
		`{"all":true}`:                       `{"all":true}`,
		`{"all":false,"state":"dead"}`:       `{"state":"dead"}`,
		`{"keys":["a","b\\xff"]}`:            `{"keys":["a","b\\xff"]}`,
		`{"header":{"x-Tenant":"","y":"z"}}`: `{"header":{"x-Tenant":"","y":"z"}}`,
		`{"reason":"term","error_code":"402","error_contains":"card","error_group":"0123456789abcdef","attempts_min":3}`: `{"attempts_min":3,"error_code":"402","error_contains":"card","error_group":"0123456789abcdef","reason":"term"}`,
		`{"ids":["01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80"],"consumer":"w1","gate":"throttle:a:b"}`:                         `{"ids":["01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80"],"consumer":"w1","gate":"throttle:a:b"}`,
		`{"consumer":"_INBOX.c-1.Xy2$"}`: `{"consumer":"_INBOX.c-1.Xy2$"}`,
		`{"enqueued_after":"1h","enqueued_before":"2030-05-06T09:08:09+02:00","died_after":"2ns","died_before":"1ns"}`: `{"enqueued_after":"2030-05-06T06:08:09.00000001Z","enqueued_before":"2030-05-06T07:08:09Z","died_after":"2030-05-06T07:08:09.000000008Z","died_before":"2030-05-06T07:08:09.000000009Z"}`,
	} {
		f, err := ParseFilter([]byte(body), filterNow)
		require.Nil(t, err, body)
		kept, merr := json.Marshal(f)
		require.NoError(t, merr)
		require.Equal(t, want, string(kept))
		again, err := ParseFilter(kept, filterNow.Add(time.Hour))
		require.Nil(t, err)
		require.Equal(t, f, again, "what is kept means the same later")
	}
}

// TestFiltersRefused: the error names the wrong field.
func TestFiltersRefused(t *testing.T) {
	for body, says := range map[string]string{
		``:                            "filter is missing",
		`{}`:                          "filter is missing",
		`{"all":false}`:               "filter is missing",
		`{"all":true,"state":"dead"}`: "all is true",
		`{"all":true,"keys":null}`:    "all is true",
		`{"state":""}`:                "state is missing",
		`{"state":"gone"}`:            "state is",
		`{"keys":[]}`:                 "keys is missing",
		`{"keys":null}`:               "keys is missing",
		`{"keys":["a",""]}`:           "keys is missing",
		`{"keys":"a"}`:                "keys: an array",
		`{"ids":["x"]}`:               "ids is",
		`{"ids":["01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7fg0"]}`: "ids is",
		`{"ids":["01981c2e-7b1c-7d3a-9b1e_2f4c5d6e7f80"]}`: "ids is",
		`{"header":{}}`:                                    "header is missing",
		`{"header":{"a b":"x"}}`:                           "header is",
		`{"header":{"Fila-Id":"x"}}`:                       "header is",
		`{"header":{"a":"1","A":"2"}}`:                     "given twice",
		`{"header":{"a":1}}`:                               "a string",
		`{"attempts_min":0}`:                               "attempts_min is missing",
		`{"attempts_min":-1}`:                              "attempts_min",
		`{"consumer":"a b"}`:                               "consumer is",
		`{"consumer":"` + strings.Repeat("i", 4097) + `"}`: "consumer is",
		`{"gate":"stripe"}`:                                "gate is",
		`{"gate":"queue:orders"}`:                          "gate is",
		`{"gate":"circuit:"}`:                              "gate is",
		`{"reason":"because"}`:                             "reason is",
		`{"error_code":""}`:                                "error_code is missing",
		`{"error_contains":""}`:                            "error_contains is missing",
		`{"error_group":"xyz"}`:                            "error_group is",
		`{"error_group":"0123456789ABCDEF"}`:               "error_group is",
		`{"died_after":"90"}`:                              `died_after is "90": the unit is missing, as in 90s or 90m; allowed are a time`,
		`{"died_after":"yesterday"}`:                       "died_after is",
		`{"died_before":"-1h"}`:                            "died_before is",
		`{"enqueued_after":"0001-01-01T00:00:00Z"}`:        "enqueued_after is",
		`{"enqueued_before":"9999-01-01T00:00:00Z"}`:       "enqueued_before is",
		`{"State":"dead"}`:                                 "unknown field",
		`{"keys":["a"],"keys":["b"]}`:                      "given twice",
		`{"enqueued_after":"1h","enqueued_before":"2h"}`:   "enqueued_before is",
		`{"died_after":"2030-05-06T07:08:09Z","died_before":"2030-05-06T09:08:09+02:00"}`: "allowed are times after",
	} {
		f, err := ParseFilter([]byte(body), filterNow)
		require.NotNil(t, err, body)
		require.Contains(t, err.Description, says, body)
		require.Zero(t, f)
	}
	long, err := json.Marshal(map[string]any{"keys": strings.Split(strings.Repeat("a ", MaxFilterKeys)+"a", " ")})
	require.NoError(t, err)
	_, werr := ParseFilter(long, filterNow)
	require.Contains(t, werr.Description, "allowed are 1 to 1000")
}

// TestFiltersFitTheirQueue: a filter that no message of the queue can match is refused.
func TestFiltersFitTheirQueue(t *testing.T) {
	for body, codes := range map[string][2]int{ // of orders, of orders.dlq
		`{"all":true}`:                       {},
		`{"state":"leased"}`:                 {},
		`{"keys":["a"],"attempts_min":2}`:    {},
		`{"state":"dead"}`:                   {wire.CodeOnlyForDLQ, 0},
		`{"died_after":"1h"}`:                {wire.CodeOnlyForDLQ, 0},
		`{"died_before":"1h"}`:               {wire.CodeOnlyForDLQ, 0},
		`{"reason":"term"}`:                  {wire.CodeOnlyForDLQ, 0},
		`{"error_code":"402"}`:               {0, 0},
		`{"error_contains":"x"}`:             {0, 0},
		`{"error_group":"0123456789abcdef"}`: {0, 0},
		`{"state":"parked"}`:                 {0, wire.CodeNotForDLQ},
		`{"gate":"throttle:x"}`:              {0, wire.CodeNotForDLQ},
	} {
		f, err := ParseFilter([]byte(body), filterNow)
		require.Nil(t, err, body)
		for i, queue := range []string{"orders", "orders" + wire.DLQSuffix} {
			got := 0
			if err := f.For(queue); err != nil {
				got = err.ErrCode
			}
			require.Equal(t, codes[i], got, "%s of %s", body, queue)
		}
	}
}

func TestHasHeader(t *testing.T) {
	encoded := wire.EncodeHeaders(nil, map[string][]string{"tenant": {"a", "b"}, "Tenant": {"c"}, "x": {""}})
	for _, tc := range []struct {
		name, value string
		want        bool
	}{
		{"tenant", "a", true},
		{"TENANT", "b", true},
		{"tenant", "c", true},
		{"tenant", "ab", false},
		{"tenan", "a", false},
		{"x", "", true},
		{"y", "", false},
	} {
		require.Equal(t, tc.want, wire.HasHeader(encoded, tc.name, tc.value), "%s %s", tc.name, tc.value)
	}
	require.False(t, wire.HasHeader([]byte{0x05, 'a'}, "a", ""))
	require.Zero(t, testing.AllocsPerRun(100, func() { wire.HasHeader(encoded, "tenant", "none") }))
}

func FuzzFilter(f *testing.F) {
	for _, seed := range []string{
		`{"all":true}`, `{"keys":["a"],"header":{"a":"b"},"died_after":"1h"}`, `{"ids":["01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80"]}`,
		`{"header":{"a":"b","A":null}}`, `{"gate":"circuit:\\x00","consumer":"c","error_contains":"\u0000"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := ParseFilter(body, filterNow)
		if err != nil {
			require.Zero(t, got)
			return
		}
		kept, merr := json.Marshal(got)
		require.NoError(t, merr)
		require.NotEqual(t, `{}`, string(kept), "nothing named means nothing")
		again, err := ParseFilter(kept, filterNow.Add(time.Hour))
		require.Nil(t, err)
		require.Equal(t, got, again)
	})
}

func FuzzHasHeader(f *testing.F) {
	f.Add(wire.EncodeHeaders(nil, map[string][]string{"a": {"b"}}), "a", "b")
	f.Fuzz(func(t *testing.T, encoded []byte, name, value string) {
		found := wire.HasHeader(encoded, name, value)
		h, err := wire.DecodeHeaders(encoded)
		if err != nil {
			return
		}
		want := false
		for n, values := range h {
			for _, v := range values {
				want = want || len(n) == len(name) && strings.EqualFold(n, name) && v == value
			}
		}
		require.Equal(t, want, found)
	})
}
