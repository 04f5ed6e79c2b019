package api

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

func untyped[R any](parse func([]byte) (R, *wire.Error)) func([]byte) (any, *wire.Error) {
	return func(body []byte) (any, *wire.Error) { return parse(body) }
}

// of parses the requests of a verb with the tail of a subject.
func of[Req, Reply any](v *Verb[Req, Reply], tail string) func([]byte) (any, *wire.Error) {
	return func(body []byte) (any, *wire.Error) { return v.Parse(tail, body) }
}

// parsers are the parsers of all requests but queue-create and queue-update, see TestPatch.
var parsers = map[string]func(body []byte) (any, *wire.Error){
	"consume":              untyped(wire.ParseConsume),
	"consumer":             untyped(func(body []byte) (wire.ConsumerRequest, *wire.Error) { return wire.ParseConsumer("w", body) }),
	"fetch":                untyped(wire.ParseFetch),
	"delete":               of(VerbQueueDelete, ""),
	"list":                 of(VerbPauseList, ""),
	"queue-list":           of(VerbQueueList, ""),
	"circuit-list":         of(VerbCircuitList, ""),
	"key-list":             of(VerbConfigList, ""),
	"inspect":              of(VerbQueueInspect, "q"),
	"config-set":           of(VerbConfigSet, "k"),
	"config-edit":          of(VerbConfigEdit, ""),
	"redrive":              of(VerbRedrive, "q"),
	"hook-reset":           of(VerbHookReset, "q"),
	"hook-show":            of(VerbHookShow, "q"),
	"hook-set":             of(VerbHookSet, "q"),
	"peek":                 of(VerbPeek, "q"),
	"throttle-set":         of(VerbThrottleSet, "k"),
	"gate-key":             of(VerbThrottleShow, "k"),
	"gate-key in the body": of(VerbThrottleShow, "_"),
	"gate-key as shown":    of(VerbThrottleShow, `a\xff`),
	"circuit-open":         of(VerbCircuitOpen, "k"),
	"pause":                of(VerbPause, ""),
	"resume":               of(VerbResume, ""),
	"explain":              of(VerbExplain, ""),
	"empty":                of(VerbConfigGet, "k"),
}

// requireRefused checks a refusal of what a client sent.
func requireRefused(t testing.TB, err *wire.Error, code int, text, sent string) {
	t.Helper()
	require.NotNil(t, err, "%.80q", sent)
	require.Equal(t, code, err.ErrCode, "%.80q: %v", sent, err)
	require.Equal(t, 400, err.Code)
	require.Contains(t, err.Description, text, "%.80q", sent)
}

func TestParseRequests(t *testing.T) {
	for _, tc := range []struct {
		parser, body string
		want         any
	}{
		{"consume", `{"consumer":"worker-1"}`, wire.ConsumeRequest{Consumer: "worker-1", MaxInFlight: 64}},
		{
			"consume", `{"consumer":"w","max_in_flight":65536,"ttl_ms":1500,"leave":true}`,
			wire.ConsumeRequest{Consumer: "w", MaxInFlight: 65536, TTLMs: 1500, Leave: true},
		},
		{"consumer", ``, wire.ConsumerRequest{ConsumeRequest: wire.ConsumeRequest{Consumer: "w", MaxInFlight: 64}}},
		{"consumer", `{"consumer":"w","leave":true}`, wire.ConsumerRequest{ConsumeRequest: wire.ConsumeRequest{Consumer: "w", MaxInFlight: 64, Leave: true}}},
		{
			"consumer", `{"fetch":{"batch":2}}`,
			wire.ConsumerRequest{ConsumeRequest: wire.ConsumeRequest{Consumer: "w", MaxInFlight: 64}, Fetch: []byte(`{"batch":2}`)},
		},
		{"fetch", ``, wire.FetchRequest{Batch: 1}},
		{"fetch", `{"batch":10,"expires_ms":5000}`, wire.FetchRequest{Batch: 10, ExpiresMs: 5000}},
		{"delete", `{"force":true}`, QueueDeleteRequest{Force: true}},
		{"list", ``, ListRequest{Limit: 100}},
		{"queue-list", `{"detail":true}`, QueueListRequest{ListRequest: ListRequest{Limit: 100}, Detail: true}},
		{"circuit-list", `{"prefix":"s","not_closed":true}`, CircuitListRequest{KeyListRequest: KeyListRequest{Prefix: "s", Limit: 100}, NotClosed: true}},
		{"key-list", ``, KeyListRequest{Limit: 100}},
		{"key-list", `{"prefix":"tenant:","offset":1}`, KeyListRequest{Prefix: "tenant:", Offset: 1, Limit: 100}},
		{"key-list", `{"prefix":"throttle:","offset":5,"limit":1000}`, KeyListRequest{Prefix: "throttle:", Offset: 5, Limit: 1000}},
		{"inspect", ``, QueueInspectRequest{Flows: 20}},
		{"inspect", `{"flows":0}`, QueueInspectRequest{}},
		{"config-set", `{"value":""}`, ConfigSetRequest{}},
		{"config-edit", `{"set":{"a":"1","b":null},"if":{"c":null},"dry_run":true}`, ConfigEditRequest{Set: map[string]*string{"a": new("1"), "b": nil}, If: map[string]*string{"c": nil}, DryRun: true}},
		{"redrive", ``, RedriveRequest{}},
		{"hook-reset", `{"hook":"on_failure"}`, HookResetRequest{Hook: wire.HookOnFailure}},
		{"hook-show", `{"hook":"on_failure"}`, HookShowRequest{Hook: wire.HookOnFailure}},
		{"hook-set", `{"hook":"on_enqueue","rollback":true,"reason":"x"}`, HookSetRequest{Hook: wire.HookOnEnqueue, Rollback: true, Reason: "x"}},
		{"peek", ``, PeekRequest{Limit: 10, PayloadBytes: 1024}},
		{"peek", `{}`, PeekRequest{Limit: 10, PayloadBytes: 1024}},
		{"peek", `{"key":"a b","limit":1000,"after":7,"payload_bytes":0}`, PeekRequest{Key: "a b", Limit: 1000, After: 7}},
		{"throttle-set", `{"unset":["burst","rate"],"limit":1}`, ThrottleSetRequest{
			Key: "k", ThrottleLimits: ThrottleLimits{Limit: new(int64(1))}, Unset: []string{"burst", "rate"},
		}},
		{"gate-key", ``, GateKeyRequest{Key: "k"}},
		{"gate-key in the body", `{"key":"a b"}`, GateKeyRequest{Key: "a b"}},
		{"circuit-open", `{"for_ms":5000}`, CircuitOpenRequest{Key: "k", ForMs: 5000}},
		{"pause", `{"kind":"queue","name":"q","until":"2030-01-01T00:00:00Z"}`, PauseRequest{Kind: "queue", Name: "q", Until: "2030-01-01T00:00:00Z"}},
		{"resume", `{"kind":"key","queue":"q","name":"a b"}`, PauseRequest{Kind: "key", Queue: "q", Name: "a b"}},
		{"explain", `{"kind":"message","id":"x"}`, ExplainRequest{Kind: "message", ID: "x"}},
		{"explain", `{"kind":"message","id":"x","queue":"q.dlq"}`, ExplainRequest{Kind: "message", ID: "x", Queue: "q.dlq"}},
		{"explain", `{"kind":"key","queue":"q","key":"a b"}`, ExplainRequest{Kind: "key", Queue: "q", Key: "a b"}},
		{"explain", `{"kind":"queue","queue":"q"}`, ExplainRequest{Kind: "queue", Queue: "q"}},
		// Requests accept keys in the form of replies.
		{"gate-key as shown", ``, GateKeyRequest{Key: "a\xff"}},
		{"gate-key in the body", `{"key":"a\\xff"}`, GateKeyRequest{Key: "a\xff"}},
		{"pause", `{"kind":"circuit","name":"a\\xff"}`, PauseRequest{Kind: "circuit", Name: "a\xff"}},
		{"resume", `{"kind":"circuit","name":"a\\xff"}`, PauseRequest{Kind: "circuit", Name: "a\xff"}},
		{"explain", `{"kind":"key","queue":"q","key":"a\\xff"}`, ExplainRequest{Kind: "key", Queue: "q", Key: "a\xff"}},
		{"peek", `{"key":"a\\xff"}`, PeekRequest{Key: "a\xff", Limit: 10, PayloadBytes: 1024}},
		{"key-list", `{"prefix":"a\\xff"}`, KeyListRequest{Prefix: "a\xff", Limit: 100}},
		{"empty", ``, Empty{}},
		{"empty", `{}`, Empty{}},
	} {
		got, err := parsers[tc.parser]([]byte(tc.body))
		require.Nil(t, err, "%s %s", tc.parser, tc.body)
		require.Equal(t, tc.want, got, "%s %s", tc.parser, tc.body)
	}
	require.Equal(t, 1500*time.Millisecond, wire.ConsumeRequest{TTLMs: 1500}.TTL())
	require.Equal(t, 5*time.Second, wire.FetchRequest{ExpiresMs: 5000}.Expires())
}

func TestParseRequestsRefused(t *testing.T) {
	for name, parse := range parsers {
		_, err := parse([]byte(`{"unheard_of":1}`))
		requireRefused(t, err, wire.CodeUnknownField, "", name)
		_, err = parse([]byte("[]"))
		requireRefused(t, err, wire.CodeBadJSON, "", name)
	}
	long := strings.Repeat("k", wire.MaxKeyBytes+1)
	_, err := wire.ParseConsumer("a*", nil)
	requireRefused(t, err, wire.CodeBadConsumerName, "allowed are 1 to 64 bytes", "the name in the subject")
	for _, tc := range []struct {
		parser, body string
		code         int
		text         string
	}{
		{"consume", "", wire.CodeBadConsumerName, `consumer name ""`},
		{"consume", `{"consumer":"a.b"}`, wire.CodeBadConsumerName, "allowed are 1 to 64 bytes"},
		{"consume", `{"consumer":"w","max_in_flight":0}`, wire.CodeBadField, "max_in_flight is 0: allowed are 1 to 65536"},
		{"consume", `{"consumer":"w","max_in_flight":-1}`, wire.CodeBadField, "max_in_flight is -1"},
		{"consume", `{"consumer":"w","max_in_flight":65537}`, wire.CodeBadField, "max_in_flight is 65537"},
		{"consume", `{"consumer":"w","ttl_ms":-1}`, wire.CodeBadField, "ttl_ms is -1"},
		{"consume", `{"consumer":"w","ttl_ms":9223372036854775807}`, wire.CodeBadField, "ttl_ms is 9223372036854775807"},
		{"consume", `{"consumer":"w","fetch":{}}`, wire.CodeUnknownField, "fetch"},
		{"consumer", `{"consumer":"v"}`, wire.CodeBadField, `consumer is "v": the subject says w`},
		{"consumer", `{"max_in_flight":0}`, wire.CodeBadField, "max_in_flight is 0"},
		{"consumer", `{"fetch":{},"leave":true}`, wire.CodeBadField, "fetch is {}: only consumer goes with it"},
		{"fetch", `{"batch":0}`, wire.CodeBadField, "batch is 0: allowed are 1 to 65536"},
		{"fetch", `{"batch":65537}`, wire.CodeBadField, "batch is 65537"},
		{"fetch", `{"expires_ms":-1}`, wire.CodeBadField, "expires_ms is -1"},
		{"fetch", `{"expires_ms":3600001}`, wire.CodeBadField, "allowed are 0 to 3600000"},
		{"list", `{"offset":-1}`, wire.CodeBadField, "offset is -1"},
		{"list", `{"limit":0}`, wire.CodeBadField, "limit is 0: allowed are 1 to 1000"},
		{"list", `{"limit":1001}`, wire.CodeBadField, "limit is 1001"},
		{"key-list", `{"offset":-1}`, wire.CodeBadField, "offset is -1"},
		{"key-list", `{"limit":-1}`, wire.CodeBadField, "limit is -1"},
		{"inspect", `{"flows":-1}`, wire.CodeBadField, "flows is -1"},
		{"inspect", `{"flows":1001}`, wire.CodeBadField, "allowed are 0 to 1000"},
		{"config-set", "", wire.CodeBadField, "value is missing"},
		{"config-set", `{"if_value":"x"}`, wire.CodeBadField, "value is missing"},
		{"config-edit", "", wire.CodeBadField, "set is 0 keys"},
		{"config-edit", `{"set":{"a b":"1"}}`, wire.CodeBadConfigKey, "a b"},
		{"config-edit", `{"set":{"a":"1"},"if":{"":"1"}}`, wire.CodeBadConfigKey, ""},
		{"config-edit", `{"set":{"a":1}}`, wire.CodeBadJSON, "set"},
		{"config-edit", `{"set":{"a":"` + strings.Repeat("x", wire.MaxConfigValue+1) + `"}}`, wire.CodeBadConfigValue, "at most 65536 bytes"},
		{"config-set", `{"value":10}`, wire.CodeBadJSON, "value: a string is expected"},
		{"config-set", `{"value":"` + strings.Repeat("x", wire.MaxConfigValue+1) + `"}`, wire.CodeBadConfigValue, "at most 65536 bytes"},
		{"redrive", `{"count":-1}`, wire.CodeBadField, "count is -1"},
		{"hook-reset", `{"hook":"on_dequeue"}`, wire.CodeBadField, "on_dequeue"},
		{"hook-show", `{}`, wire.CodeBadField, "allowed are on_enqueue and on_failure"},
		{"hook-set", `{"hook":"on_enqueue"}`, wire.CodeBadField, "exactly one of script and rollback is required"},
		{"hook-set", `{"hook":"on_enqueue","script":"","rollback":true}`, wire.CodeBadField, "exactly one of script and rollback is required"},
		{"peek", `{"limit":0}`, wire.CodeBadField, "limit is 0: allowed are 1 to 1000"},
		{"peek", `{"limit":1001}`, wire.CodeBadField, "limit is 1001"},
		{"peek", `{"payload_bytes":-1}`, wire.CodeBadField, "payload_bytes is -1: allowed are 0 to 65536"},
		{"peek", `{"payload_bytes":65537}`, wire.CodeBadField, "payload_bytes is 65537"},
		{"peek", `{"after":-1}`, wire.CodeBadJSON, "after"},
		{"peek", `{"queue":"q"}`, wire.CodeUnknownField, `unknown field "queue"`},
		{"peek", `{"key":"` + long + `"}`, wire.CodeBadField, "1 to 256 bytes"},
		{"throttle-set", ``, wire.CodeBadThrottle, "nothing to set"},
		{"throttle-set", `{"if":{"rate":"5"},"for_ms":1}`, wire.CodeBadThrottle, "nothing to set"},
		{"throttle-set", `{"rate":null}`, wire.CodeBadThrottle, "nothing to set"},
		{"throttle-set", `{"rate":"fast"}`, wire.CodeBadThrottle, `rate is "fast": allowed is a number per second`},
		{"throttle-set", `{"rate":0}`, wire.CodeBadThrottle, `rate is "0"`},
		{"throttle-set", `{"rate":""}`, wire.CodeBadThrottle, `rate is ""`},
		{"throttle-set", `{"burst":0}`, wire.CodeBadThrottle, "burst is 0: allowed are 1 to 1000000000"},
		{"throttle-set", `{"burst":0.5}`, wire.CodeBadThrottle, "burst is 0.5"},
		{"throttle-set", `{"burst":1e10}`, wire.CodeBadThrottle, "burst is 1e+10"},
		{"throttle-set", `{"concurrency":0}`, wire.CodeBadThrottle, "concurrency is 0: allowed are 1 to 1000000000"},
		{"throttle-set", `{"concurrency":1000000001}`, wire.CodeBadThrottle, "concurrency is 1000000001"},
		{"throttle-set", `{"limit":-1}`, wire.CodeBadThrottle, "limit is -1"},
		{"throttle-set", `{"window_ms":0}`, wire.CodeBadThrottle, "window_ms is 0: allowed are 1 to 31536000000"},
		{"throttle-set", `{"window_ms":31536000001}`, wire.CodeBadThrottle, "window_ms is 31536000001"},
		{"throttle-set", `{"rate":{}}`, wire.CodeBadJSON, "rate: a number per second, or one in quotes, is expected, got object"},
		{"throttle-set", `{"rate":[1]}`, wire.CodeBadJSON, "got array"},
		{"throttle-set", `{"rate":true}`, wire.CodeBadJSON, "got bool"},
		{"throttle-set", `{"limit":1,"if":{"rate":false}}`, wire.CodeBadJSON, "if.rate: a number per second"},
		{"throttle-set", `{"unset":["speed"]}`, wire.CodeBadThrottle, `unset names "speed"`},
		{"throttle-set", `{"unset":["rate","rate"]}`, wire.CodeBadThrottle, "twice"},
		{"throttle-set", `{"rate":1,"unset":["rate"]}`, wire.CodeBadThrottle, "rate is given and in unset"},
		{"throttle-set", `{"rate":1,"if":{"limit":-1}}`, wire.CodeBadThrottle, "limit is -1"},
		{"throttle-set", `{"rate":1,"if":{"rate":"x"}}`, wire.CodeBadThrottle, `rate is "x"`},
		{"throttle-set", `{"rate":1,"if":{"speed":1}}`, wire.CodeBadJSON, "speed"},
		{"throttle-set", `{"rate":1,"for_ms":-1}`, wire.CodeBadField, "for_ms is -1"},
		{"throttle-set", `{"rate":1,"for_ms":31536000001}`, wire.CodeBadField, "for_ms is 31536000001"},
		{"throttle-set", `{"rate":1,"key":"other"}`, wire.CodeBadField, `the subject has "k"`},
		{"throttle-set", `{"burst":"2"}`, wire.CodeBadJSON, "burst: a number is expected, got string"},
		{"throttle-set", `{"if":[]}`, wire.CodeBadJSON, "if: an object is expected, got array"},
		{"throttle-set", `{"limit":1.5}`, wire.CodeBadJSON, "limit: a whole number"},
		{"throttle-set", `{"speed":1}`, wire.CodeUnknownField, "allowed are key, rate, burst, concurrency, limit, window_ms, adapt, level, budget, period, zone, warn_at, on_empty, unset, for_ms, if"},
		{"gate-key", `{"key":"other"}`, wire.CodeBadField, `the subject has "k"`},
		{"gate-key in the body", ``, wire.CodeBadField, "key is missing"},
		{"circuit-open", `{"for_ms":-1}`, wire.CodeBadField, "for_ms is -1"},
		{"circuit-open", `{"key":"x"}`, wire.CodeBadField, "the subject has"},
		{"key-list", `{"limit":0}`, wire.CodeBadField, "limit is 0"},
		{"key-list", `{"limit":1001}`, wire.CodeBadField, "limit is 1001"},
		{"pause", ``, wire.CodeBadField, `kind is missing`},
		{"pause", `{"kind":"tenant","name":"a"}`, wire.CodeBadField, "allowed are queue, key, throttle and circuit"},
		{"pause", `{"kind":"queue"}`, wire.CodeBadField, "allowed is the name of a queue"},
		{"pause", `{"kind":"queue","name":"a b"}`, wire.CodeBadField, `name is "a b"`},
		{"pause", `{"kind":"queue","name":"a","queue":"a"}`, wire.CodeBadField, "it is only for kind key"},
		{"pause", `{"kind":"throttle","name":""}`, wire.CodeBadField, "name is missing"},
		{"pause", `{"kind":"circuit","name":"` + long + `"}`, wire.CodeBadField, "1 to 256 bytes"},
		{"pause", `{"kind":"key","name":"a"}`, wire.CodeBadField, "a fairness key needs the name of its queue"},
		{"pause", `{"kind":"queue","name":"a","for_ms":-1}`, wire.CodeBadField, "for_ms is -1"},
		{"pause", `{"kind":"queue","name":"a","until":"tomorrow"}`, wire.CodeBadField, `until is "tomorrow": allowed is a future time as RFC 3339`},
		{"pause", `{"kind":"queue","name":"a","until":"9999-01-01T00:00:00Z"}`, wire.CodeBadField, "within 365 days"},
		{"pause", `{"kind":"queue","name":"a","until":"2030-01-01T00:00:00Z","for_ms":1}`, wire.CodeBadField, "only one of until and for_ms"},
		{"resume", `{"kind":"queue","name":"a","until":"2030-01-01T00:00:00Z"}`, wire.CodeBadField, "only pause has it"},
		{"resume", `{"kind":"queue","name":"a","for_ms":1}`, wire.CodeBadField, "only pause has it"},
		{"resume", `{"kind":"queue"}`, wire.CodeBadField, "name"},
		{"explain", ``, wire.CodeBadField, `kind is missing: allowed are message, key and queue`},
		{"explain", `{"kind":"message"}`, wire.CodeBadField, "id is missing"},
		{"explain", `{"kind":"message","id":"x","key":"y"}`, wire.CodeBadField, "kind message takes only an id"},
		{"explain", `{"kind":"message","id":"x","queue":"a b"}`, wire.CodeBadQueueName, `"a b"`},
		{"explain", `{"kind":"key","queue":"q"}`, wire.CodeBadField, "key is missing"},
		{"explain", `{"kind":"key","key":"k"}`, wire.CodeBadQueueName, `""`},
		{"explain", `{"kind":"key","queue":"q","key":"k","id":"x"}`, wire.CodeBadField, "only kind message"},
		{"explain", `{"kind":"queue"}`, wire.CodeBadQueueName, `""`},
		{"explain", `{"kind":"queue","queue":"q","key":"k"}`, wire.CodeBadField, "kind queue takes no key"},
		{"empty", `{"a":1}`, wire.CodeUnknownField, "no fields are allowed"},
	} {
		got, err := parsers[tc.parser]([]byte(tc.body))
		requireRefused(t, err, tc.code, tc.text, tc.parser+" "+tc.body)
		require.Zero(t, got)
	}
}

func TestWildcards(t *testing.T) {
	s, err := wire.NewSubjects("fila")
	require.NoError(t, err)
	require.Equal(t, []string{"fila.admin.config-set.>"}, Wildcards(s, VerbConfigSet))
	require.Equal(t, []string{"fila.admin.config-list"}, Wildcards(s, VerbConfigList))
	require.Equal(t, []string{"fila.admin.job-create.>", "fila.admin.job-create"}, Wildcards(s, VerbJobCreate))
}
