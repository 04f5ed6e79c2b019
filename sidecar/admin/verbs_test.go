package admin

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// verbTable returns the table of an Admin that cannot carry anything out.
func verbTable() []Verb { return new(Admin).newTable() }

func TestEveryVerbHasOneRow(t *testing.T) {
	var rows []api.AnyVerb
	for _, v := range verbTable() {
		rows = append(rows, v.AnyVerb)
	}
	require.ElementsMatch(t, api.Verbs(), rows)
}

// TestVerbsAreDocumented: docs/protocol.md has exactly the verbs of the table, with their tails.
func TestVerbsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/protocol.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## Admin\n")
	require.True(t, found)
	section, _, found = strings.Cut(section, "\n## ")
	require.True(t, found)
	var documented []string
	subject := regexp.MustCompile("`(?:fila\\.admin\\.)?([a-z-]+(?:\\.<[a-z]+>)*(?:\\.dlq)?)`")
	for line := range strings.Lines(section) {
		if cell, ok := strings.CutPrefix(line, "| `fila.admin."); ok {
			cell, _, _ = strings.Cut("`fila.admin."+cell, " | ")
			for _, m := range subject.FindAllStringSubmatch(cell, -1) {
				documented = append(documented, m[1])
			}
		}
	}
	tails := map[api.Tail]string{
		api.TailNewQueue: ".<queue>", api.TailQueue: ".<queue>", api.TailMainQueue: ".<queue>", api.TailDeadLetters: ".<queue>.dlq",
		api.TailConfigKey: ".<key>", api.TailGateKey: ".<key>", api.TailJob: ".<op>.<queue>",
	}
	var table []string
	for _, v := range api.Verbs() {
		table = append(table, v.String()+tails[v.Kind()])
	}
	require.ElementsMatch(t, table, documented)
}

// TestTheClientUsesEveryVerb, so that the command line can do everything.
func TestTheClientUsesEveryVerb(t *testing.T) {
	files, err := filepath.Glob("../../client/*.go")
	require.NoError(t, err)
	var code []byte
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			code = append(code, data...)
		}
	}
	for _, v := range api.Verbs() {
		name := "api.Verb"
		for word := range strings.SplitSeq(v.String(), "-") {
			name += strings.ToUpper(word[:1]) + word[1:]
		}
		require.Regexp(t, name+`\b`, string(code))
	}
}

// TestVerbsRefuse requests before they change anything. Package wire tests the requests that
// do not parse.
func TestVerbsRefuse(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{"on_failure":"function on_failure(msg) return {} end"}`, nil)
		h.must(api.VerbThrottleSet, "k", `{"rate":1}`, nil)
		state := func() (all [6]any) {
			for i, verb := range []api.AnyVerb{
				api.VerbQueueList, api.VerbConfigList, api.VerbConfigLog, api.VerbThrottleList, api.VerbCircuitList, api.VerbPauseList,
			} {
				h.must(verb, "", ``, &all[i])
			}
			return all
		}
		before := state()
		for _, tc := range []struct {
			verb       api.AnyVerb
			tail, body string
			code       int
			names      string // what the description must name
		}{
			{api.VerbQueueCreate, "a$b", ``, wire.CodeBadQueueName, ""},
			{api.VerbQueueCreate, "orders.dlq", ``, wire.CodeReservedName, ""},
			{api.VerbQueueCreate, "new", `{`, wire.CodeBadJSON, ""},
			{api.VerbQueueCreate, "new", `{"retry_policy":"none"}`, wire.CodeBadQueueSettings, ""},
			{api.VerbQueueCreate, "new", `{"on_enqueue":"function"}`, wire.CodeHookLoad, ""},
			{api.VerbQueueCreate, "orders", `{"quantum":7}`, wire.CodeQueueExists, ""},
			{api.VerbQueueUpdate, "orders", `{"retry_policy":"none"}`, wire.CodeBadQueueSettings, ""},
			{api.VerbQueueUpdate, "orders", `{"max_depth":-1}`, wire.CodeBadQueueSettings, ""},
			{api.VerbQueueUpdate, "orders", `{"nothing":1}`, wire.CodeUnknownField, ""},

			{api.VerbHookReset, "orders", `{"hook":"on_enqueue"}`, wire.CodeHookNotFound, ""},
			{api.VerbExplain, "", `{"kind":"message","id":"x"}`, wire.CodeBadField, ""},
			{api.VerbExplain, "", `{"kind":"message","id":"x","queue":"new"}`, wire.CodeQueueNotFound, ""},
			{api.VerbExplain, "", `{"kind":"key","key":"a","queue":"new"}`, wire.CodeQueueNotFound, ""},
			{api.VerbExplain, "", `{"kind":"queue","queue":"a$b"}`, wire.CodeBadQueueName, ""},
			{api.VerbConfigSet, "a b", `{"value":"1"}`, wire.CodeBadConfigKey, ""},
			{api.VerbConfigSet, "a", ``, wire.CodeBadField, ""},
			{api.VerbConfigGet, "a b", ``, wire.CodeBadConfigKey, ""},
			{api.VerbConfigGet, "a", ``, wire.CodeConfigKeyNotFound, ""},
			{api.VerbConfigDelete, "a", `{"value":"1"}`, wire.CodeUnknownField, ""},
			{api.VerbThrottleSet, "stripe", `{"rate":"x"}`, wire.CodeBadThrottle, ""},
			{api.VerbThrottleShow, "_", `{"key":"two words"}`, wire.CodeThrottleNotFound, ""},
			{api.VerbThrottleClear, "k", `{"x":1}`, wire.CodeUnknownField, "x"},
			{api.VerbCircuitShow, "nobody", ``, wire.CodeCircuitNotFound, "nobody"},
			{api.VerbCircuitClose, "nobody", ``, wire.CodeCircuitNotFound, "nobody"},
			{api.VerbCircuitReset, "nobody", ``, wire.CodeCircuitNotFound, "nobody"},
			{api.VerbPause, "", `{"kind":"queue","name":"new"}`, wire.CodeQueueNotFound, ""},
			{api.VerbResume, "", `{"kind":"queue","name":"orders"}`, wire.CodePauseNotFound, ""},
			{api.VerbReload, "", ``, wire.CodeReloadFailed, ""},
			{api.VerbStoreBackup, "", `{"path":"/etc/passwd"}`, wire.CodeUnknownField, ""},
			{api.VerbStoreBackup, "", ``, wire.CodeBackupFailed, ""}, // this store cannot be copied
		} {
			werr := h.ask(tc.verb, tc.tail, tc.body, nil)
			require.NotNil(t, werr, tc)
			require.Equal(t, tc.code, werr.ErrCode, "%v: %v", tc, werr)
			require.Contains(t, werr.Description, tc.names, tc)
		}
		require.Equal(t, before, state())
	})
}

// TestVerbsKnowTheirQueues: each verb about a queue refuses bad names, missing queues and
// queues of the other kind.
func TestVerbsKnowTheirQueues(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", ``, nil)
		bodies := map[string]string{"hook-show": `{"hook":"on_enqueue"}`, "hook-set": `{"hook":"on_enqueue","rollback":true}`}
		refused := func(v Verb, tail string) int {
			if werr := h.ask(v.AnyVerb, tail, bodies[v.String()], nil); werr != nil {
				return werr.ErrCode
			}
			return 0
		}
		looked := 0
		for _, v := range h.verbs {
			switch v.Kind() {
			case api.TailQueue, api.TailMainQueue, api.TailDeadLetters:
			default:
				continue
			}
			looked++
			require.Equal(t, wire.CodeBadQueueName, refused(v, "a$b"), v.String())
			require.Equal(t, wire.CodeQueueNotFound, refused(v, "nosuch"), v.String())
			if v.Kind() == api.TailMainQueue {
				require.Equal(t, wire.CodeNotForDLQ, refused(v, "orders.dlq"), v.String())
			}
			if v.Kind() == api.TailDeadLetters {
				require.Zero(t, refused(v, "orders"), v.String())
				require.Zero(t, refused(v, "orders.dlq"), v.String())
				require.Equal(t, "orders.dlq", v.request(api.Sender{}, "orders", nil).tail, "a node of an older version knows no other name")
			}
		}
		require.Equal(t, 18, looked)
	})
}

// TestOldKeysAreShownAndNamedEscaped: replies escape a key that is not UTF-8, and requests
// can name it in that form.
func TestOldKeysAreShownAndNamedEscaped(t *testing.T) {
	const shown, key = `a\xff`, "a\xff"
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", "{}", nil)
		var circuit api.CircuitInfo
		h.must(api.VerbCircuitOpen, shown, "", &circuit)
		require.Equal(t, shown, circuit.Key)
		_, known := h.gates.circuit(key)
		require.True(t, known)
		h.must(api.VerbCircuitClose, shown, "", &circuit)

		var throttle api.ThrottleInfo
		h.must(api.VerbThrottleSet, shown, `{"concurrency":1}`, &throttle)
		require.Equal(t, shown, throttle.Key)
		require.EqualValues(t, 1, h.control.Gates().Limits(key).Concurrency)
		var throttles api.ThrottleList
		h.must(api.VerbThrottleList, "", `{"prefix":"a\\xff"}`, &throttles)
		require.Len(t, throttles.Throttles, 1)
		require.Equal(t, shown, throttles.Throttles[0].Key)
		var log api.ConfigLog
		h.must(api.VerbConfigLog, "", `{"prefix":"throttle:a\\xff"}`, &log)
		require.Equal(t, "throttle:"+shown+":concurrency", log.Entries[0].Key)
		var config api.ConfigList
		h.must(api.VerbConfigList, "", "", &config)
		require.Equal(t, "throttle:"+shown+":concurrency", config.Entries[0].Key)
		h.must(api.VerbConfigDelete, "throttle:"+shown+":concurrency", "", nil)

		var pause api.PauseInfo
		h.must(api.VerbPause, "", `{"kind":"key","queue":"orders","name":"a\\xff"}`, &pause)
		require.Equal(t, shown, pause.Name)
		_, paused := h.control.Pauses("orders")
		require.Contains(t, paused, key)
		var why api.ExplainKey
		h.must(api.VerbExplain, "", `{"kind":"key","queue":"orders","key":"a\\xff"}`, &why)
		require.Equal(t, shown, why.Key)
		require.Equal(t, `Key "a\xff" is paused until it is resumed.`, why.Reason)
		h.must(api.VerbResume, "", `{"kind":"key","queue":"orders","name":"a\\xff"}`, &pause)
	})
}
