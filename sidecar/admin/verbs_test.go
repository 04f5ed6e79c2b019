package admin

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// verbTable returns the table of an Admin that cannot carry anything out.
func verbTable() []Verb { return new(Admin).newTable() }

func TestEveryVerbHasOneRow(t *testing.T) {
	var rows []wire.AnyVerb
	for _, v := range verbTable() {
		rows = append(rows, v.AnyVerb)
	}
	require.ElementsMatch(t, wire.Verbs(), rows)
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
	tails := map[wire.Tail]string{
		wire.TailNewQueue: ".<queue>", wire.TailQueue: ".<queue>", wire.TailMainQueue: ".<queue>", wire.TailDeadLetters: ".<queue>.dlq",
		wire.TailConfigKey: ".<key>", wire.TailGateKey: ".<key>", wire.TailJob: ".<op>.<queue>",
	}
	var table []string
	for _, v := range wire.Verbs() {
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
	for _, v := range wire.Verbs() {
		name := "wire.Verb"
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
		h.must(wire.VerbQueueCreate, "orders", `{"on_failure":"function on_failure(msg) return {} end"}`, nil)
		h.must(wire.VerbThrottleSet, "k", `{"rate":1}`, nil)
		state := func() (all [6]any) {
			for i, verb := range []wire.AnyVerb{
				wire.VerbQueueList, wire.VerbConfigList, wire.VerbConfigLog, wire.VerbThrottleList, wire.VerbCircuitList, wire.VerbPauseList,
			} {
				h.must(verb, "", ``, &all[i])
			}
			return all
		}
		before := state()
		for _, tc := range []struct {
			verb       wire.AnyVerb
			tail, body string
			code       int
			names      string // what the description must name
		}{
			{wire.VerbQueueCreate, "a$b", ``, wire.CodeBadQueueName, ""},
			{wire.VerbQueueCreate, "orders.dlq", ``, wire.CodeReservedName, ""},
			{wire.VerbQueueCreate, "new", `{`, wire.CodeBadJSON, ""},
			{wire.VerbQueueCreate, "new", `{"retry_policy":"none"}`, wire.CodeBadQueueSettings, ""},
			{wire.VerbQueueCreate, "new", `{"on_enqueue":"function"}`, wire.CodeHookLoad, ""},
			{wire.VerbQueueCreate, "orders", `{"quantum":7}`, wire.CodeQueueExists, ""},
			{wire.VerbQueueUpdate, "orders", `{"retry_policy":"none"}`, wire.CodeBadQueueSettings, ""},
			{wire.VerbQueueUpdate, "orders", `{"max_depth":-1}`, wire.CodeBadQueueSettings, ""},
			{wire.VerbQueueUpdate, "orders", `{"nothing":1}`, wire.CodeUnknownField, ""},

			{wire.VerbHookReset, "orders", `{"hook":"on_enqueue"}`, wire.CodeHookNotFound, ""},
			{wire.VerbExplain, "", `{"kind":"message","id":"x"}`, wire.CodeBadField, ""},
			{wire.VerbExplain, "", `{"kind":"message","id":"x","queue":"new"}`, wire.CodeQueueNotFound, ""},
			{wire.VerbExplain, "", `{"kind":"key","key":"a","queue":"new"}`, wire.CodeQueueNotFound, ""},
			{wire.VerbExplain, "", `{"kind":"queue","queue":"a$b"}`, wire.CodeBadQueueName, ""},
			{wire.VerbConfigSet, "a b", `{"value":"1"}`, wire.CodeBadConfigKey, ""},
			{wire.VerbConfigSet, "a", ``, wire.CodeBadField, ""},
			{wire.VerbConfigGet, "a b", ``, wire.CodeBadConfigKey, ""},
			{wire.VerbConfigGet, "a", ``, wire.CodeConfigKeyNotFound, ""},
			{wire.VerbConfigDelete, "a", `{"value":"1"}`, wire.CodeUnknownField, ""},
			{wire.VerbThrottleSet, "stripe", `{"rate":"x"}`, wire.CodeBadThrottle, ""},
			{wire.VerbThrottleShow, "_", `{"key":"two words"}`, wire.CodeThrottleNotFound, ""},
			{wire.VerbThrottleClear, "k", `{"x":1}`, wire.CodeUnknownField, "x"},
			{wire.VerbCircuitShow, "nobody", ``, wire.CodeCircuitNotFound, "nobody"},
			{wire.VerbCircuitClose, "nobody", ``, wire.CodeCircuitNotFound, "nobody"},
			{wire.VerbCircuitReset, "nobody", ``, wire.CodeCircuitNotFound, "nobody"},
			{wire.VerbPause, "", `{"kind":"queue","name":"new"}`, wire.CodeQueueNotFound, ""},
			{wire.VerbResume, "", `{"kind":"queue","name":"orders"}`, wire.CodePauseNotFound, ""},
			{wire.VerbReload, "", ``, wire.CodeReloadFailed, ""},
			{wire.VerbStoreBackup, "", `{"path":"/etc/passwd"}`, wire.CodeUnknownField, ""},
			{wire.VerbStoreBackup, "", ``, wire.CodeBackupFailed, ""}, // this store cannot be copied
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
		h.must(wire.VerbQueueCreate, "orders", ``, nil)
		refused := func(v Verb, tail string) int {
			if werr := h.ask(v.AnyVerb, tail, ``, nil); werr != nil {
				return werr.ErrCode
			}
			return 0
		}
		looked := 0
		for _, v := range h.verbs {
			switch v.Kind() {
			case wire.TailQueue, wire.TailMainQueue, wire.TailDeadLetters:
			default:
				continue
			}
			looked++
			require.Equal(t, wire.CodeBadQueueName, refused(v, "a$b"), v.String())
			require.Equal(t, wire.CodeQueueNotFound, refused(v, "nosuch"), v.String())
			if v.Kind() == wire.TailMainQueue {
				require.Equal(t, wire.CodeNotForDLQ, refused(v, "orders.dlq"), v.String())
			}
			if v.Kind() == wire.TailDeadLetters {
				require.Zero(t, refused(v, "orders"), v.String())
				require.Zero(t, refused(v, "orders.dlq"), v.String())
				require.Equal(t, "orders.dlq", v.request("", "orders", nil).tail, "a node of an older version knows no other name")
			}
		}
		require.Equal(t, 14, looked)
	})
}

// TestOldKeysAreShownAndNamedEscaped: replies escape a key that is not UTF-8, and requests
// can name it in that form.
func TestOldKeysAreShownAndNamedEscaped(t *testing.T) {
	const shown, key = `a\xff`, "a\xff"
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(wire.VerbQueueCreate, "orders", "{}", nil)
		var circuit wire.CircuitInfo
		h.must(wire.VerbCircuitOpen, shown, "", &circuit)
		require.Equal(t, shown, circuit.Key)
		_, known := h.gates.circuit(key)
		require.True(t, known)
		h.must(wire.VerbCircuitClose, shown, "", &circuit)

		var throttle wire.ThrottleInfo
		h.must(wire.VerbThrottleSet, shown, `{"concurrency":1}`, &throttle)
		require.Equal(t, shown, throttle.Key)
		require.EqualValues(t, 1, h.control.Gates().Limits(key).Concurrency)
		var throttles wire.ThrottleList
		h.must(wire.VerbThrottleList, "", `{"prefix":"a\\xff"}`, &throttles)
		require.Len(t, throttles.Throttles, 1)
		require.Equal(t, shown, throttles.Throttles[0].Key)
		var log wire.ConfigLog
		h.must(wire.VerbConfigLog, "", `{"prefix":"throttle:a\\xff"}`, &log)
		require.Equal(t, "throttle:"+shown+":concurrency", log.Entries[0].Key)
		var config wire.ConfigList
		h.must(wire.VerbConfigList, "", "", &config)
		require.Equal(t, "throttle:"+shown+":concurrency", config.Entries[0].Key)
		h.must(wire.VerbConfigDelete, "throttle:"+shown+":concurrency", "", nil)

		var pause wire.PauseInfo
		h.must(wire.VerbPause, "", `{"kind":"key","queue":"orders","name":"a\\xff"}`, &pause)
		require.Equal(t, shown, pause.Name)
		_, paused := h.control.Pauses("orders")
		require.Contains(t, paused, key)
		var why wire.ExplainKey
		h.must(wire.VerbExplain, "", `{"kind":"key","queue":"orders","key":"a\\xff"}`, &why)
		require.Equal(t, shown, why.Key)
		require.Equal(t, `Key "a\xff" is paused until it is resumed.`, why.Reason)
		h.must(wire.VerbResume, "", `{"kind":"key","queue":"orders","name":"a\\xff"}`, &pause)
	})
}
