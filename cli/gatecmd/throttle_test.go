package gatecmd

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

var program = clitest.Program(Commands)

func stripe() api.ThrottleInfo {
	rate, burst, slots, limit, window := wire.Rate("0.5"), 20.0, int64(5), int64(100), int64(60_000)
	return api.ThrottleInfo{
		Key:            "stripe",
		ThrottleLimits: api.ThrottleLimits{Rate: &rate, Burst: &burst, Concurrency: &slots, Limit: &limit, WindowMs: &window},
		Source:         "override", OverrideUntil: "2026-01-02T12:10:00Z",
		State: "rate", AdmitsAt: "2026-01-02T12:00:01.5Z", Tokens: 0.25, InWindow: 40, InFlight: 3, Waiting: 2,
	}
}

func TestThrottleAdapt(t *testing.T) {
	f := clitest.StartFake(t)
	i := stripe()
	i.Learned = &api.ThrottleLearned{Of: "concurrency", Level: 3, Ceiling: 5, Min: 1, Next: 4, Cuts: 1, Steps: []api.ThrottleStep{
		{From: 5, To: 2.5, Began: "2026-01-02T11:59:00Z", At: "2026-01-02T11:59:00Z", Cause: "429 of message m"},
		{From: 2.5, To: 3, Began: "2026-01-02T11:59:01Z", At: "2026-01-02T11:59:30Z"},
	}}
	f.Answer("fila.admin.throttle-set.stripe", i)
	f.Answer("fila.admin.throttle-show.stripe", i)
	for _, tc := range []struct {
		args, want string
		asks       bool
	}{
		{"--freeze --for 10m", `{"level":3,"for_ms":600000}`, true},
		{"--level 2.5", `{"level":2.5}`, false},
		{"--release", `{"unset":["level"]}`, false},
	} {
		r := clitest.OK(t, program.RunAt(t, append([]string{"throttle", "adapt", "stripe"}, strings.Fields(tc.args)...)...))
		if tc.asks {
			f.Next()
		}
		require.JSONEq(t, tc.want, string(f.Next().Data))
		require.Contains(t, r.Out, "3 at once of 5, cut from 5 at 2026-01-02T11:59:00Z by 429 of message m, next step at 4")
		require.Contains(t, r.Out, "it succeeded")
	}
	for _, args := range []string{"", "--freeze --release", "--release --for 1m"} {
		r := program.RunAt(t, append([]string{"throttle", "adapt", "stripe"}, strings.Fields(args)...)...)
		require.Equal(t, command.ExitUsage, r.Code, args)
	}
}

func TestThrottleSet(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.admin.throttle-set.stripe", stripe())
	f.Answer("fila.admin.throttle-set._", stripe())
	for _, tc := range []struct {
		args, want string
	}{
		{"stripe --rate 10", `{"rate":"10"}`},
		{
			"stripe --rate 0.5 --burst 20 --concurrency 5 --limit 100 --window 1m --for 10m",
			`{"rate":"0.5","burst":20,"concurrency":5,"limit":100,"window_ms":60000,"for_ms":600000}`,
		},
		{"stripe --rate 1/3 --if-rate 10 --if-window 30s", `{"rate":"1/3","if":{"rate":"10","window_ms":30000}}`},
		{
			"stripe --rate 5 --if-rate none --if-burst none --if-concurrency none --if-limit none --if-window none",
			`{"rate":"5","if":{"rate":"","burst":0,"concurrency":0,"limit":0,"window_ms":0}}`,
		},
		{"stripe --unset burst,window --unset limit", `{"unset":["burst","window_ms","limit"]}`},
		{"stripe --adapt overload,min=4 --level 12.5", `{"adapt":{"signal":"overload","min":4,"backoff":0.7},"level":12.5}`},
		{"stripe --unset adapt,level --if-adapt none --if-level none", `{"unset":["adapt","level"],"if":{"adapt":{"signal":""},"level":0}}`},
		{"vendor.* --burst 1.5", `{"key":"vendor.*","burst":1.5}`},
	} {
		r := clitest.OK(t, program.RunAt(t, append([]string{"throttle", "set"}, strings.Fields(tc.args)...)...))
		require.JSONEq(t, tc.want, string(f.Next().Data))
		require.Equal(t, clitest.Lines(
			"throttle        stripe",
			"limits          0.5/s, burst 20, 5 at once, 100 in any 1m",
			"set by          override",
			"override ends   2026-01-02T12:10:00Z (in 10m)",
			"now             blocks: rate, admits 2026-01-02T12:00:01Z (in 1.5s)",
			"tokens          0.25",
			"in the window   40 of 100",
			"in flight       3",
			"waiting queues  2",
			"admitted        0",
			"blocked         0",
		), r.Out)
	}
	f.Answer("fila.admin.throttle-set.other", wire.ThrottleMismatch("other", "rate", "10"))
	r := program.RunAt(t, "throttle", "set", "other", "--rate", "1", "--if-rate", "2")
	require.Equal(t, command.ExitConflict, r.Code)
	require.Equal(t, `fila: rate of throttle key "other" is "10", which is not what if expects: see what is set with `+
		"`fila throttle show other` [err_code 14409]\n", r.Err)
}

func TestThrottleUsage(t *testing.T) {
	clitest.Isolate(t)
	t.Setenv("NATS_URL", "nats://127.0.0.1:1")
	program.Mistakes(t, map[string]string{
		"throttle set":                           "KEY is missing",
		"throttle set k":                         "nothing to set: give at least one of --rate, --burst",
		"throttle set k --for 5m":                "nothing to set",
		"throttle set k --rate fast":             `rate is "fast": allowed is a number per second such as 10 or 0.5`,
		"throttle set k --rate=":                 `rate is "": allowed is a number per second`,
		"throttle set k --burst 0":               "burst is 0: allowed are 1 to 1000000000",
		"throttle set k --concurrency 0":         "concurrency is 0: allowed are 1 to",
		"throttle set k --limit 5 --window 0":    "window_ms is 0: allowed are 1 to",
		"throttle set k --window soon":           "allowed is a duration such as 30s",
		"throttle set k --rate 1 --if-burst x":   `--if-burst "x": allowed is a value of the limit, or none`,
		"throttle set k --rate 1 --if-window x":  `--if-window "x"`,
		"throttle set k --rate 1 --if-limit 1.5": `--if-limit "1.5"`,
		"throttle show a b":                      `unexpected argument "b"`,
		"throttle lst":                           "(did you mean set or list?)",
	})
}

func TestThrottleShowAndClear(t *testing.T) {
	f := clitest.StartFake(t)
	cleared := api.ThrottleInfo{Key: "stripe", Source: "none", State: "open"}
	clitest.Shows(f, program, "throttle clear stripe", "fila.admin.throttle-clear.stripe", cleared,
		"throttle        stripe",
		"limits          none",
		"set by          none",
		"now             admits",
		"in flight       0",
		"waiting queues  0",
		"admitted        0",
		"blocked         0",
	)
	require.JSONEq(t, `{}`, string(f.Next().Data))
	f.Next()

	paused := stripe()
	paused.State, paused.AdmitsAt, paused.PausedUntil, paused.OverrideUntil = "paused", "", "resumed", ""
	f.Answer("fila.admin.throttle-show._", paused)
	r := clitest.OK(t, program.RunAt(t, "throttle", "show", "two words"))
	require.JSONEq(t, `{"key":"two words"}`, string(f.Next().Data))
	require.Contains(t, r.Out, "paused          until `fila resume throttle stripe`\n")
	require.Contains(t, r.Out, "now             blocks: paused\n")
	require.Equal(t, paused, clitest.JSON[api.ThrottleInfo](t, program.RunAt(t, "throttle", "show", "two words", "--json")))

	rate := wire.Rate("10")
	prefix := api.ThrottleInfo{Key: "tenant:*", ThrottleLimits: api.ThrottleLimits{Rate: &rate}, Source: "operator"} // it has no gate
	clitest.Shows(f, program, "throttle show tenant:*", "fila.admin.throttle-show.tenant:*", prefix, "throttle  tenant:*", "limits    10/s", "set by    operator")

	clitest.Complains(t, program.RunAt(t, "throttle", "show", strings.Repeat("k", wire.MaxKeyBytes+1)), command.ExitUsage, "allowed are 1 to 256 bytes of UTF-8")

	f.Answer("fila.admin.throttle-show.gone", wire.ThrottleNotFound("gone"))
	clitest.Complains(t, program.RunAt(t, "throttle", "show", "gone"), command.ExitNotFound, "`fila throttle list` lists the known keys [err_code 14404]")
}

func TestThrottleThatIsShared(t *testing.T) {
	f := clitest.StartFake(t)
	shared, four, one := stripe(), int64(4), int64(1)
	shared.Admits, shared.State, shared.AdmitsAt = true, "open", ""
	shared.Shared = &api.ThrottleShared{
		Users: map[string]int64{"us": 1, "eu": 4}, Tokens: 1.5, InWindow: 7,
		Own: &api.ThrottleLimits{Concurrency: &four}, By: "eu",
	}
	f.Answer("fila.admin.throttle-show.stripe", shared)
	r := clitest.OK(t, program.RunAt(t, "throttle", "show", "stripe"))
	for _, line := range []string{
		"shared          by eu (4 permits), us (1 permit)\n", "tokens of all   1.5\n", "window of all   7 of 100\n",
		"set here        4 at once; fila eu set others later\n",
	} {
		require.Contains(t, r.Out, line)
	}
	for line, s := range map[string]*api.ThrottleShared{
		"shared          no other fila uses it\n":                                        {Alone: true},
		"shared          degraded: this fila uses its leases and its part of the rate\n": {Degraded: true},
	} {
		shared.Shared = s
		f.Answer("fila.admin.throttle-show.stripe", shared)
		require.Contains(t, clitest.OK(t, program.RunAt(t, "throttle", "show", "stripe")).Out, line)
	}
	list := api.ThrottleList{Total: 1, Throttles: []api.ThrottleInfo{{Key: "a", ThrottleLimits: api.ThrottleLimits{Concurrency: &one}, Source: "operator", State: "open", Shared: &api.ThrottleShared{}}}}
	f.Answer("fila.admin.throttle-list", list)
	require.Contains(t, clitest.OK(t, program.RunAt(t, "throttle", "list")).Out, "operator, shared")
}

func TestThrottleList(t *testing.T) {
	f := clitest.StartFake(t)
	ten := wire.Rate("10")
	list := api.ThrottleList{Total: 3, Throttles: []api.ThrottleInfo{
		{Key: "a\x1b[31m", Source: "none", State: "open", InFlight: 1},
		stripe(),
		{Key: "tenant:*", ThrottleLimits: api.ThrottleLimits{Rate: &ten}, Source: "operator", State: "open"},
	}}
	clitest.Shows(f, program, "throttle list s", "fila.admin.throttle-list", list,
		"KEY       LIMITS                                     SET BY    NOW           ADMITS   TOKENS  IN FLIGHT  WAITING QUEUES",
		"a?[31m    none                                       none      admits        -        -       1          0",
		"stripe    0.5/s, burst 20, 5 at once, 100 in any 1m  override  blocks: rate  in 1.5s  0.25    3          2",
		"tenant:*  10/s                                       operator  -             -        -       -          -",
	)
	require.JSONEq(t, `{"prefix":"s","limit":1000}`, string(f.Next().Data))
	clitest.Shows(f, program, "throttle list", "fila.admin.throttle-list", api.ThrottleList{Throttles: []api.ThrottleInfo{}},
		"no throttle keys; limit one with `fila throttle set KEY --rate 10`")
}

func TestLimitsInWords(t *testing.T) {
	rate, burst, n := wire.Rate("1/3"), 1.5, int64(1500)
	for want, l := range map[string]api.ThrottleLimits{
		"none":                                 {},
		"1 every 3 s":                          {Rate: &rate},
		"burst 1.5 (no effect without a rate)": {Burst: &burst},
		"limit 1500 (no effect without a window)": {Limit: &n},
		"window 1.5s (no effect without a limit)": {WindowMs: &n},
		"1500 at once, 1500 in any 1.5s":          {Concurrency: &n, Limit: &n, WindowMs: &n},
	} {
		require.Equal(t, want, l.Text())
	}
}
