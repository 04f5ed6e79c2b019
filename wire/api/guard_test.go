package api

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

func TestGuardCheckRefused(t *testing.T) {
	keys := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, `"`+strings.Repeat("k", i+1)+`"`)
		}
		return strings.Join(list, ",")
	}
	for name, c := range map[string]struct{ tail, body, field string }{
		"no key":                 {"_", `{}`, "key"},
		"two keys":               {"v", `{"key":"w"}`, "key"},
		"a key too long":         {"_", `{"key":"` + strings.Repeat("k", wire.MaxKeyBytes+1) + `"}`, "key"},
		"eight further keys":     {"v", `{"with":[` + keys(8) + `]}`, "with"},
		"a key twice":            {"v", `{"with":["a","a"]}`, "with"},
		"the first key again":    {"v", `{"with":["v"]}`, "with"},
		"an empty key":           {"v", `{"with":[""]}`, "with"},
		"too cheap":              {"v", `{"cost":0.0009}`, "cost"},
		"a negative cost":        {"v", `{"cost":-1}`, "cost"},
		"too dear":               {"v", `{"cost":1000001}`, "cost"},
		"NaN":                    {"v", `{"cost":NaN}`, "at byte"},
		"more than a float":      {"v", `{"cost":1e999}`, "cost"},
		"a life without time":    {"v", `{"ttl_ms":-1}`, "ttl_ms"},
		"longer than an hour":    {"v", `{"ttl_ms":3600001}`, "ttl_ms"},
		"more than 64 bits":      {"v", `{"ttl_ms":99999999999999999999}`, "ttl_ms"},
		"a caller with controls": {"v", `{"caller":"a\u0000b"}`, "caller"},
		"a long caller":          {"v", `{"caller":"` + strings.Repeat("c", MaxGuardCallerBytes+1) + `"}`, "caller"},
		"no checks":              {"_", `{"checks":[]}`, "checks"},
		"too many checks":        {"_", `{"checks":[` + strings.Repeat(`{"key":"a"},`, MaxGuardChecks) + `{"key":"a"}]}`, "checks"},
		"checks and more":        {"_", `{"checks":[{"key":"a"}],"cost":1}`, "checks"},
		"a check in a check":     {"_", `{"checks":[{"key":"a","checks":[]}]}`, "checks"},
		"one check is wrong":     {"_", `{"checks":[{"key":"a"},{"key":"b","cost":-1}]}`, "checks[1]"},
	} {
		_, err := ParseGuardCheck(c.tail, []byte(c.body))
		require.NotNil(t, err, name)
		require.Equal(t, 400, err.Code, name)
		require.Contains(t, err.Description, c.field, name)
	}
	_, err := ParseGuardCheck("v", []byte(`{"with":[`+keys(7)+`],"cost":0.001,"ttl_ms":3600000}`))
	require.Nil(t, err)
}

func TestGuardDoneCost(t *testing.T) {
	permit := strings.Repeat("a", wire.PermitLen)
	for text, want := range map[string]int64{"0": 1, "0.0001": 1, "2.5": 2500, "1000000": 1e9, "null": 7} {
		r, err := ParseGuardDone("v", []byte(`{"permit":"`+permit+`","outcome":"ok","cost":`+text+`}`))
		require.Nil(t, err, text)
		require.Equal(t, want, r.Thousandths(7), text)
	}
	for _, text := range []string{"-1", "1000000.1", "1e999", `"1"`, "NaN"} {
		_, err := ParseGuardDone("v", []byte(`{"permit":"`+permit+`","outcome":"ok","cost":`+text+`}`))
		require.NotNil(t, err, text)
		require.Equal(t, 400, err.Code, text)
	}
}

// AppendAllowed writes the same JSON as encoding/json.
func TestGuardAnswerAllowed(t *testing.T) {
	for _, probe := range []bool{false, true} {
		a := GuardAnswer{Allowed: true, Permit: strings.Repeat("aZ_-", wire.PermitLen/4), ExpiresAt: wire.Timestamp(1e18), Probe: probe}
		want, err := json.Marshal(&a)
		require.NoError(t, err)
		require.Equal(t, string(want), string(a.AppendAllowed(nil)))
	}
}

// Any input is refused as a bad request or is within all bounds. An accepted request, encoded
// again, is accepted and equal.
func FuzzGuardRequests(f *testing.F) {
	permit := strings.Repeat("a", wire.PermitLen)
	for _, body := range []string{
		"", `{"with":["tenant:acme"],"cost":0.5,"ttl_ms":1000,"caller":"web"}`, `{"key":"a key","with":[]}`,
		`{"checks":[{"key":"a"},{"key":"b","with":["c"],"cost":1e6}]}`, `{"checks":null}`, `{"cost":1e-3}`, `{"cost":-0}`,
		`{"permit":"` + permit + `","outcome":"ok","cost":0}`, `{"permit":"` + permit + `","outcome":"error","cost":1e6}`,
		`{"permit":"` + permit + `","outcome":"ok"}`, `{"error_code":"503","error":"x","attempt":2,"retry_policy":"p"}`,
		`{"permit":"` + permit + `","outcome":"error","error_code":"503","error":"\u0000","retry_after_ms":1,"attempt":4294967295,"retry_policy":"p"}`,
	} {
		f.Add("v", []byte(body))
		f.Add("_", []byte(body))
	}
	f.Fuzz(func(t *testing.T, tail string, body []byte) {
		if r, err := ParseGuardCheck(tail, body); err == nil {
			asks := r.Checks
			if asks == nil {
				asks = []GuardAsk{r.GuardAsk}
			}
			require.True(t, len(asks) >= 1 && len(asks) <= MaxGuardChecks)
			for i := range asks {
				a := &asks[i]
				keys := a.Keys()
				require.LessOrEqual(t, len(keys), MaxGuardKeys)
				for j, key := range keys {
					require.NoError(t, wire.CheckKey(key))
					require.NotContains(t, keys[:j], key)
				}
				require.False(t, math.IsNaN(a.Cost))
				require.True(t, a.Thousandths() >= 1 && a.Thousandths() <= MaxGuardCost*1000)
				require.True(t, a.TTLMs >= 1 && a.TTLMs <= MaxPermitMs)
			}
			again, err := json.Marshal(r)
			require.NoError(t, err)
			r2, werr := ParseGuardCheck("_", again)
			if len(r.Checks) == 0 {
				require.Nil(t, werr)
				require.Equal(t, r.Keys(), r2.Keys())
			}
		} else {
			require.Equal(t, 400, err.Code)
		}
		if r, err := ParseGuardState(tail, body); err == nil {
			require.LessOrEqual(t, len(r.Error), maxGuardErrorBytes)
			require.Equal(t, r.ErrorCode+r.Error != "", r.Failure() != nil)
		} else {
			require.Equal(t, 400, err.Code)
		}
		if r, err := ParseGuardDone(tail, body); err == nil {
			require.NoError(t, wire.CheckKey(r.Key))
			require.Len(t, r.Permit, wire.PermitLen)
			require.GreaterOrEqual(t, r.Attempt, uint32(1))
			require.LessOrEqual(t, len(r.Error), maxGuardErrorBytes)
			require.True(t, r.Outcome == GuardOK || r.Outcome == GuardError)
			cost := r.Thousandths(5)
			require.True(t, cost >= 1 && cost <= MaxGuardCost*1000)
			require.True(t, r.Cost != nil || cost == 5)
		} else {
			require.Equal(t, 400, err.Code)
		}
	})
}

func TestParsePermitRequests(t *testing.T) {
	id := PermitID(1, 2)
	for body, names := range map[string]string{
		`{"limit":0}`: "limit", `{"limit":1001}`: "limit", `{"offset":1}`: "offset", `{"after":"x"}`: "after", `{"after":"` + strings.ToUpper(PermitID(15, 1)) + `"}`: "after",
		`{"caller":"` + strings.Repeat("x", 65) + `"}`: "caller", `{"key":"` + strings.Repeat("x", 257) + `"}`: "key",
	} {
		_, err := VerbGuardPermits.Parse("", []byte(body))
		require.NotNil(t, err, body)
		require.Contains(t, err.Description, names, body)
	}
	for body, names := range map[string]string{
		``: "key", `{}`: "ids", `{"ids":[]}`: "ids", `{"ids":["x"]}`: "ids", `{"key":"k","limit":1}`: "limit", `{"caller":"\u0000"}`: "caller",
		`{"ids":[` + strings.TrimSuffix(strings.Repeat(`"`+id+`",`, MaxPermitIDs+1), ",") + `]}`: "1001",
	} {
		_, err := VerbGuardEnd.Parse("", []byte(body))
		require.NotNil(t, err, body)
		require.Contains(t, err.Description, names, body)
	}
	list, err := VerbGuardPermits.Parse("", nil)
	require.Nil(t, err)
	require.Equal(t, GuardPermitsRequest{Limit: DefaultListLimit}, list)
	end, err := VerbGuardEnd.Parse("", []byte(`{"caller":""}`))
	require.Nil(t, err)
	require.Empty(t, *end.Caller, "callers without a name are meant")
	end, err = VerbGuardEnd.Parse("", []byte(`{"key":"a\\x00b","ids":["`+id+`"]}`))
	require.Nil(t, err)
	require.Equal(t, "a\x00b", end.Key)
}

func TestPermitIDs(t *testing.T) {
	for _, pair := range [][2]uint64{{0, 0}, {1, 2}, {math.MaxUint64, math.MaxUint64}} {
		issuer, number, ok := ParsePermitID(PermitID(pair[0], pair[1]))
		require.True(t, ok)
		require.Equal(t, pair, [2]uint64{issuer, number})
	}
	require.Less(t, PermitID(1, math.MaxUint64), PermitID(2, 0), "in order")
	require.Less(t, PermitID(1, 9), PermitID(1, 10))
	for _, bad := range []string{"", "-", "1-2", PermitID(1, 2) + "0", "+" + PermitID(1, 2)[1:], strings.Replace(PermitID(1, 2), "-", ".", 1)} {
		_, _, ok := ParsePermitID(bad)
		require.False(t, ok, bad)
	}
}

func TestMostPermits(t *testing.T) {
	require.Equal(t, []GuardHolder{{Key: "b", Permits: 5}, {User: "x", Permits: 3}, {Key: "a", Permits: 2}},
		MostPermits([]GuardHolder{{Key: "a", Permits: 2}, {Key: "b", Permits: 1}, {User: "x", Permits: 3}, {Key: "b", Permits: 4}}))
}

// A page that is cut to fit into a message says where the next one begins.
func TestALongPageOfPermits(t *testing.T) {
	list := GuardPermitList{Next: "x"}
	for i := range 1000 {
		list.Permits = append(list.Permits, GuardPermit{ID: PermitID(1, uint64(i)), Key: strings.Repeat("k", 256)})
	}
	for range MaxGuardHolders {
		list.Keys = append(list.Keys, GuardHolder{Key: strings.Repeat("\"", 256)})
		list.Callers = append(list.Callers, GuardHolder{User: strings.Repeat("\"", MaxGuardUserBytes)})
	}
	for _, room := range []int{32 << 10, 64 << 10, 128 << 10} {
		short := list
		short.Shorten(room)
		data, err := json.Marshal(short)
		require.NoError(t, err)
		require.LessOrEqual(t, len(data), room)
		require.Equal(t, short.Permits[len(short.Permits)-1].ID, short.Next)
		require.Less(t, len(short.Permits), 1000)
	}
}
