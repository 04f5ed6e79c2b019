package wire

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type header = map[string][]string

var testNow = time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)

func TestParseEnqueueHeaders(t *testing.T) {
	now := testNow.UnixNano()
	for name, tc := range map[string]struct {
		h    header
		want EnqueueOptions
	}{
		"nil":                {nil, EnqueueOptions{}},
		"empty":              {header{}, EnqueueOptions{}},
		"others":             {header{"tenant": {"a", "b"}, "traceparent": {"x"}, "Filament": {"1"}}, EnqueueOptions{}},
		"NATS's notes":       {header{"Nats-Stream": {"2"}, "nats-sequence": {"3"}, "Nats-Request-Info": {"{}"}, "Nats-Trace-Dest": {"x"}}, EnqueueOptions{}},
		"no values":          {header{HeaderDelay: {}, HeaderMsgID: nil}, EnqueueOptions{}},
		"msg id":             {header{HeaderMsgID: {"a-1"}}, EnqueueOptions{DedupeID: "a-1"}},
		"msg id, spaces":     {header{HeaderMsgID: {" a 1 "}}, EnqueueOptions{DedupeID: " a 1 "}},
		"msg id, longest":    {header{HeaderMsgID: {strings.Repeat("x", 256)}}, EnqueueOptions{DedupeID: strings.Repeat("x", 256)}},
		"msg id, other case": {header{"nats-msg-id": {"a"}}, EnqueueOptions{DedupeID: "a"}},
		"msg id, upper case": {header{"NATS-MSG-ID": {"a"}}, EnqueueOptions{DedupeID: "a"}},
		"canonical MIME":     {header{"Nats-Ttl": {"5"}}, EnqueueOptions{TTL: 5 * time.Second}},
		"same value twice":   {header{HeaderMsgID: {"a", "a"}, "nats-msg-id": {"a"}}, EnqueueOptions{DedupeID: "a"}},
		"delay":              {header{HeaderDelay: {"90s"}}, EnqueueOptions{NotBefore: now + int64(90*time.Second), Delayed: true}},
		"delay, lower case":  {header{"fila-delay": {"1m30s"}}, EnqueueOptions{NotBefore: now + int64(90*time.Second), Delayed: true}},
		"delay, spaces":      {header{HeaderDelay: {" 1ms "}}, EnqueueOptions{NotBefore: now + int64(time.Millisecond), Delayed: true}},
		"delay 0":            {header{HeaderDelay: {"0"}}, EnqueueOptions{}},
		"delay 0s":           {header{HeaderDelay: {"0s"}}, EnqueueOptions{}},
		"delay, longest":     {header{HeaderDelay: {"87600h"}}, EnqueueOptions{NotBefore: now + int64(MaxDelay), Delayed: true}},
		"not before":         {header{HeaderNotBefore: {"2030-01-02T03:04:06Z"}}, EnqueueOptions{NotBefore: testNow.Truncate(time.Second).Add(time.Second).UnixNano()}},
		"not before, zone":   {header{HeaderNotBefore: {"2030-01-02T05:04:06.5+02:00"}}, EnqueueOptions{NotBefore: testNow.Truncate(time.Second).Add(1500 * time.Millisecond).UnixNano()}},
		"not before, past":   {header{HeaderNotBefore: {"2029-01-01T00:00:00Z"}}, EnqueueOptions{}},
		"not before, now":    {header{HeaderNotBefore: {testNow.Format(time.RFC3339Nano)}}, EnqueueOptions{}},
		"not before, year 1": {header{HeaderNotBefore: {"0001-01-01T00:00:00Z"}}, EnqueueOptions{}},
		"not before, last":   {header{HeaderNotBefore: {testNow.Add(MaxDelay).Format(time.RFC3339Nano)}}, EnqueueOptions{NotBefore: now + int64(MaxDelay)}},
		"ttl, seconds":       {header{HeaderTTL: {"60"}}, EnqueueOptions{TTL: time.Minute}},
		"ttl, duration":      {header{HeaderTTL: {"1m30s"}}, EnqueueOptions{TTL: 90 * time.Second}},
		"ttl, fraction":      {header{HeaderTTL: {"1.5s"}}, EnqueueOptions{TTL: 1500 * time.Millisecond}},
		"ttl, least":         {header{HeaderTTL: {"1"}}, EnqueueOptions{TTL: time.Second}},
		"ttl, most":          {header{HeaderTTL: {"315360000"}}, EnqueueOptions{TTL: MaxDelay}},
		"ttl never":          {header{HeaderTTL: {"never"}}, EnqueueOptions{}},
		"ttl Never":          {header{HeaderTTL: {"Never"}}, EnqueueOptions{}},
		"all": {
			header{HeaderMsgID: {"a"}, HeaderDelay: {"1s"}, HeaderTTL: {"2s"}},
			EnqueueOptions{DedupeID: "a", NotBefore: now + int64(time.Second), Delayed: true, TTL: 2 * time.Second},
		},
	} {
		got, err := ParseEnqueueHeaders(tc.h, now)
		require.Nil(t, err, name)
		require.Equal(t, tc.want, got, name)
	}
}

func TestParseEnqueueHeadersRefused(t *testing.T) {
	now := testNow.UnixNano()
	delays := []string{"", " ", "30", "-1s", "1", "soon", "NaN", "Inf", "1e3s", "87600h1ns", "9223372036854775807h", "1s 2s", "10y", "null", "+-1s"}
	notBefores := []string{
		"", "tomorrow", "1700000000", "2030-01-02", "2030-01-02 03:04:05Z", "2030-13-01T00:00:00Z", "2030-02-30T00:00:00Z",
		"2030-01-02T03:04:05", "2041-01-01T00:00:00Z", "9999-12-31T23:59:59Z", testNow.Add(MaxDelay + 1).Format(time.RFC3339Nano),
	}
	ttls := []string{"", "0", "0s", "-1", "-1s", "999ms", "0.5", "1.5", "abc", "315360001", "87600h1ns", "9223372036854775807", "18446744073709551617", "nevers", "1e3", "0x10", "1_000", "+5"}

	check := func(h header, code int, text string) {
		t.Helper()
		got, err := ParseEnqueueHeaders(h, now)
		require.NotNil(t, err, "%v", h)
		require.Equal(t, code, err.ErrCode, "%v", h)
		require.Equal(t, 400, err.Code)
		require.Contains(t, err.Description, text)
		require.Zero(t, got)
	}
	for _, v := range delays {
		check(header{HeaderDelay: {v}}, CodeBadDelay, "Fila-Delay")
		check(header{"FILA-DELAY": {v}}, CodeBadDelay, "Fila-Delay")
	}
	for _, v := range notBefores {
		check(header{HeaderNotBefore: {v}}, CodeBadNotBefore, "Fila-Not-Before")
	}
	for _, v := range ttls {
		check(header{HeaderTTL: {v}}, CodeBadTTL, "Nats-TTL")
	}
	check(header{HeaderMsgID: {""}}, CodeBadMsgID, "0 bytes")
	check(header{HeaderMsgID: {"a\xff"}}, CodeBadMsgID, `Nats-Msg-Id "a\xff": allowed is UTF-8 without control characters`)
	check(header{HeaderMsgID: {"a\x01"}}, CodeBadMsgID, "without control characters")
	check(header{HeaderMsgID: {strings.Repeat("x", 257)}}, CodeBadMsgID, "257 bytes: allowed are 1 to 256")
	check(header{HeaderDelay: {"1s"}, HeaderNotBefore: {"2030-01-02T03:04:06Z"}}, CodeDelayAndNotBefore, "only one")
	check(header{HeaderDelay: {"0"}, "fila-not-before": {"x"}}, CodeDelayAndNotBefore, "only one")
	for _, name := range []string{HeaderMsgID, HeaderDelay, HeaderNotBefore, HeaderTTL} {
		check(header{name: {"1", "2"}}, CodeHeaderRepeated, name)
		check(header{name: {"1"}, strings.ToUpper(name): {"2"}}, CodeHeaderRepeated, name)
	}
	for _, name := range []string{
		"Fila-Id", "fila-delays", "Fila-", "Fila-Schedule", "Fila-Scheduled-At", "Nats-Schedule-Source", "nats-schedule-rollup", "Nats-Expected-Last-Sequence", "Nats-Rollup", "Nats-Trace-", "Nats-", "Status", "STATUS",
	} {
		check(header{name: {"x"}}, CodeHeaderReserved, `header "`+name+`": names that begin with Fila- or Nats-, and Status, are reserved; allowed of them are Fila-Delay, Fila-Not-Before, Nats-Msg-Id, Nats-TTL and those that make a schedule`)
		check(header{name: {}, HeaderDelay: {"1s"}}, CodeHeaderReserved, name)
	}
	for _, name := range []string{"", " ", "a b", "a:b", "a(b)", "a/b", "tenant@x", "é", "a\x00", "a\x7f", `a"b`, "[a]", "{a}", "a,b", "a;b", "a?b", `a\b`, "<a>", "a=b"} {
		check(header{name: {"x"}}, CodeBadHeaderName, "header name")
	}
}

func TestParseEnqueueHeadersAtAnyTime(t *testing.T) {
	for _, now := range []int64{0, -1, math.MinInt64 / 2, math.MaxInt64 - int64(MaxDelay)} {
		o, err := ParseEnqueueHeaders(header{HeaderDelay: {"1h"}}, now)
		require.Nil(t, err)
		require.Equal(t, now+int64(time.Hour), o.NotBefore)
	}
}

func FuzzParseEnqueueHeaders(f *testing.F) {
	f.Add(HeaderDelay, "1s", HeaderMsgID, "a", testNow.UnixNano())
	f.Add(HeaderNotBefore, "2031-01-02T03:04:05Z", HeaderTTL, "never", testNow.UnixNano())
	f.Add("fila-ttl", "5", "Nats-TTL", "9223372036854775807", int64(0))
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string, now int64) {
		if now < 0 || now > math.MaxInt64-int64(MaxDelay) {
			return // before 1970 or after 2252
		}
		h := header{k1: {v1}}
		h[k2] = append(h[k2], v2)
		o, err := ParseEnqueueHeaders(h, now)
		if err != nil {
			require.Equal(t, 400, err.Code)
			require.True(t, slices.ContainsFunc(catalog, func(e Entry) bool { return e.ErrCode == err.ErrCode }))
			require.NotContains(t, err.Description, "\n")
			require.Zero(t, o)
			return
		}
		require.LessOrEqual(t, len(o.DedupeID), MaxDedupeID)
		require.True(t, o.TTL == 0 || o.TTL >= time.Second && o.TTL <= MaxDelay, o.TTL)
		require.True(t, o.NotBefore == 0 || o.NotBefore > now && o.NotBefore-now <= int64(MaxDelay), o.NotBefore)
	})
}

func TestScheduleHeaders(t *testing.T) {
	type header = map[string][]string
	all := header{
		"nats-schedule": {"0 30 2 * * *"}, HeaderScheduleTarget: {"orders"}, HeaderScheduleName: {"nightly"}, HeaderScheduleZone: {"Europe/Berlin"},
		"Nats-Schedule-Ttl": {"5m"}, HeaderScheduleMissed: {"all"}, "tenant": {"acme"},
	}
	with := func(name string, values ...string) header {
		h := maps.Clone(all)
		h[name] = values
		return h
	}
	without := func(name string) header {
		h := maps.Clone(all)
		delete(h, name)
		return h
	}
	o, err := ParseEnqueueHeaders(all, 0)
	require.Nil(t, err)
	require.Equal(t, EnqueueOptions{Schedule: &ScheduleHeaders{
		Name: "nightly", Schedule: "0 30 2 * * *", TimeZone: "Europe/Berlin", Missed: MissedAll, Target: "orders", TTLMs: 300_000,
	}}, o)
	o, err = ParseEnqueueHeaders(without(HeaderScheduleMissed), 0)
	require.Nil(t, err)
	require.Equal(t, MissedOne, o.Schedule.Missed)
	for _, c := range []struct {
		h    header
		code int
		want string
	}{
		{without("nats-schedule"), CodeBadSchedule, "Nats-Schedule is missing"},
		{without(HeaderScheduleName), CodeBadSchedule, "Fila-Schedule-Name is missing"},
		{without(HeaderScheduleTarget), CodeBadSchedule, "Nats-Schedule-Target is missing"},
		{with(HeaderDelay, "5m"), CodeBadSchedule, "Fila-Delay does not go"},
		{with(HeaderNotBefore, "5m"), CodeBadSchedule, "Fila-Not-Before does not go"},
		{with(HeaderMsgID, "5m"), CodeBadSchedule, "Nats-Msg-Id does not go"},
		{with(HeaderTTL, "5m"), CodeBadSchedule, "Nats-TTL does not go"},
		{with("Nats-Schedule-Ttl", "5"), 0, ""},
		{with("Nats-Schedule-Ttl", "x"), CodeBadTTL, "x"},
		{with("Nats-Schedule-Source", "x"), CodeHeaderReserved, "Nats-Schedule-Source"},
		{with(HeaderScheduleName, "a", "b"), CodeHeaderRepeated, HeaderScheduleName},
	} {
		_, err := ParseEnqueueHeaders(c.h, 0)
		if c.code == 0 {
			require.Nil(t, err)
			continue
		}
		require.NotNil(t, err, c.want)
		require.Equal(t, c.code, err.ErrCode)
		require.Contains(t, err.Description, c.want)
	}
}

// Of the reserved headers, only those that fila adds to the run of a schedule are stored.
func TestHeadersOfARunAreKept(t *testing.T) {
	h, err := DecodeHeaders(EncodeHeaders(nil, map[string][]string{HeaderScheduledBy: {"a"}, HeaderScheduledAt: {"b"}, HeaderID: {"c"}, "fila-schedule": {"d"}, "x": {"y"}}))
	require.NoError(t, err)
	require.Equal(t, map[string][]string{HeaderScheduledBy: {"a"}, HeaderScheduledAt: {"b"}, "x": {"y"}}, h)
}
