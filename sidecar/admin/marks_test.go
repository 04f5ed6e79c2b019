package admin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// shownMark is a mark without its time.
func shownMark(m api.Mark) string {
	return strings.TrimSpace(strings.Join([]string{m.Kind, m.Object, m.Text, m.By, m.Client}, " | "))
}

// TestMarks: a queue has its marks and the marks of the gates that have blocked its messages, a gate
// has its own. All of them have the annotations of all charts, and none is older than an hour.
func TestMarks(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		marks := func(body string) []string {
			t.Helper()
			var reply api.Marks
			h.must(api.VerbMarks, "", body, &reply)
			require.Equal(t, reply.Total, len(reply.Marks))
			list := []string{}
			for _, m := range reply.Marks {
				list = append(list, shownMark(m))
			}
			return list
		}
		tick := func() { time.Sleep(time.Second) }
		h.must(api.VerbQueueCreate, "orders", `{"throttle_headers":["Gate"],"circuit_header":"Bank","on_failure":"function on_failure(msg) return {} end"}`, nil)
		h.must(api.VerbQueueCreate, "other", ``, nil)
		require.Empty(t, marks(`{"queue":"orders"}`))
		h.must(api.VerbPause, "", `{"kind":"queue","name":"other"}`, nil)
		h.must(api.VerbThrottleSet, "tenant:*", `{"concurrency":1}`, nil)
		h.must(api.VerbThrottleSet, "unused", `{"rate":"7"}`, nil)

		// Without a consumer nothing is blocked: then the queue has no marks of its gates.
		h.must(api.VerbThrottleSet, "vendor", `{"rate":"1/3600","burst":1}`, nil)
		h.must(api.VerbCircuitOpen, "bank", ``, nil)
		h.enqueue("orders", "1", nats.Header{"Gate": {"vendor"}})
		require.Empty(t, marks(`{"queue":"orders"}`))
		h.consume("orders", 10)
		h.enqueue("orders", "2", nats.Header{"Gate": {"vendor"}})
		h.enqueue("orders", "3", nats.Header{"Bank": {"bank"}})
		h.must(api.VerbAttention, "", ``, nil)

		tick()
		h.must(api.VerbAnnotate, "", `{"text":"release <3> \"x\""}`, nil)
		tick()
		h.must(api.VerbAnnotate, "", `{"text":"import","queue":"orders"}`, nil)
		tick()
		h.must(api.VerbPause, "", `{"kind":"key","queue":"orders","name":"acme","for_ms":2000}`, nil)
		until := wire.Timestamp(h.shards.Now() + 2e9)
		tick()
		h.must(api.VerbThrottleSet, "vendor", `{"rate":"5","concurrency":3,"for_ms":3600000}`, nil)
		over := wire.Timestamp(h.shards.Now() + 3600e9)
		time.Sleep(2 * time.Second)
		h.must(api.VerbHookSet, "orders", `{"hook":"on_failure","script":"","reason":"INC-7"}`, nil)
		tick()
		h.must(api.VerbHookSet, "orders", `{"hook":"on_failure","rollback":true}`, nil)
		tick()
		h.must(api.VerbThrottleSet, "vendor", `{"rate":"2","unset":["burst"]}`, nil)
		tick()
		h.must(api.VerbCircuitClose, "bank", ``, nil)
		tick()
		h.must(api.VerbQueueUpdate, "orders", `{"max_depth":1000}`, nil)

		vendor := []string{
			"limits | throttle:vendor | burst removed, was 1, rate from 1/3600 to 2 | throttle-set | tester",
			"limits | throttle:vendor | override rate 5, concurrency 3, until " + over + " | throttle-set | tester",
			`annotation |  | release <3> "x" | annotate | tester`,
			"limits | throttle:vendor | burst 1, rate 1/3600 | throttle-set | tester",
		}
		require.Equal(t, []string{
			"settings | queue:orders | max_depth changed | queue-update | tester",
			"circuit | circuit:bank | closed by hand | circuit-close | tester",
			vendor[0],
			"hook | queue:orders | on_failure rolled back | hook-set | tester",
			"hook | queue:orders | on_failure set: INC-7 | hook-set | tester",
			"resume | key:orders:acme | resumed | pause-ended |",
			vendor[1],
			"pause | key:orders:acme | paused until " + until + " | pause | tester",
			"annotation | queue:orders | import | annotate | tester",
			vendor[2],
			"circuit | circuit:bank | opened by hand | circuit-open | tester",
			vendor[3],
		}, marks(`{"queue":"orders"}`))
		require.Equal(t, vendor, marks(`{"throttle":"vendor"}`))
		require.Equal(t, vendor[:1], marks(`{"throttle":"vendor","window_ms":2500}`))
		require.Equal(t, []string{vendor[2]}, marks(`{}`))
		require.Equal(t, []string{vendor[2], "limits | throttle:tenant:* | concurrency 1 | throttle-set | tester"}, marks(`{"throttle":"tenant:acme"}`))
		require.Equal(t, []string{vendor[2], "pause | queue:other | paused until resumed | pause | tester"}, marks(`{"queue":"other"}`))

		var some api.Marks
		h.must(api.VerbMarks, "", `{"queue":"orders","limit":2}`, &some)
		require.Equal(t, 12, some.Total)
		require.Len(t, some.Marks, 2)
		require.Equal(t, wire.CodeQueueNotFound, h.ask(api.VerbMarks, "", `{"queue":"nobody"}`, nil).ErrCode)

		time.Sleep(time.Hour)
		require.Equal(t, []string{"limits | throttle:vendor | the override is over | override-ended |"}, marks(`{"throttle":"vendor"}`))
	})
}

// TestMarksSetBack: the latest change of a hook, a limit and a key of the runtime configuration can be
// set back, and a change that was changed again cannot.
func TestMarksSetBack(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		undone := func() (list []string) {
			t.Helper()
			var reply api.Marks
			h.must(api.VerbMarks, "", `{"throttle":"vendor"}`, &reply)
			var ofQueue api.Marks
			h.must(api.VerbMarks, "", `{"queue":"orders"}`, &ofQueue)
			for _, m := range append(ofQueue.Marks, reply.Marks...) {
				if m.Undo != nil && (m.Kind != api.MarkConfig || m.Object == "" && !slices.Contains(list, m.Text+": "+m.Undo.Command)) {
					list = append(list, m.Text+": "+m.Undo.Command)
				}
			}
			return list
		}
		set := func(key, value string) {
			h.must(api.VerbConfigSet, key, `{"value":"`+value+`"}`, nil)
			time.Sleep(time.Second)
		}
		h.must(api.VerbQueueCreate, "orders", ``, nil)
		set("release", "1")
		require.Equal(t, []string{"release set to 1: fila config delete release"}, undone())
		set("release", "2")
		require.Equal(t, []string{"release from 1 to 2: fila config set release 1"}, undone(), "the first change is no longer the latest")
		back := wire.Timestamp(h.shards.Now())
		set("release", "1")
		require.Equal(t, []string{"release from 2 to 1: fila config set release 2"}, undone(), "although the first change had made this value")
		var marks api.Marks
		h.must(api.VerbMarks, "", `{"queue":"orders"}`, &marks)
		require.Equal(t, back, marks.Marks[1].ChangedAgain)
		set("release", "2")
		set("weight:orders:acme", "2")
		require.Len(t, undone(), 1, "a weight is no mark")
		h.must(api.VerbConfigDelete, "release", ``, nil)
		require.Equal(t, []string{"release removed, was 2: fila config set release 2"}, undone())
		time.Sleep(2 * time.Hour)

		script := func(text string) {
			h.must(api.VerbHookSet, "orders", `{"hook":"on_failure","script":"function on_failure(msg) return {`+text+`} end"}`, nil)
			time.Sleep(time.Second)
		}
		script("")
		script(" ")
		require.Equal(t, []string{"on_failure set: fila hook rollback orders --hook on_failure"}, undone())
		time.Sleep(2 * time.Hour)
		h.must(api.VerbThrottleSet, "vendor", `{"rate":"10"}`, nil)
		time.Sleep(time.Second)
		h.must(api.VerbThrottleSet, "vendor", `{"rate":"2"}`, nil)
		require.Equal(t, []string{"rate from 10 to 2: fila throttle set vendor --rate 10 --if-rate 2"}, undone())
	})
}

// TestBefore: a finding and a group of dead letters have the changes of the two minutes before, and no
// older ones.
func TestBefore(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{"max_deliveries":1}`, nil)
		before := func() []string {
			var reply api.Attention
			h.must(api.VerbAttention, "", ``, &reply)
			require.Len(t, reply.Findings, 1)
			return textsOf(reply.Findings[0].Before)
		}
		h.must(api.VerbConfigSet, "release", `{"value":"1"}`, nil)
		time.Sleep(3 * time.Minute)
		h.must(api.VerbConfigSet, "release", `{"value":"2"}`, nil)
		time.Sleep(time.Minute)
		h.enqueue("orders", "x", nil)
		time.Sleep(time.Second)
		require.Equal(t, []string{"release from 1 to 2"}, before())
	})
}

func textsOf(marks []api.Mark) (texts []string) {
	for i := range marks {
		texts = append(texts, marks[i].Text)
	}
	return texts
}

// TestMarksOfACircuit: openings by failures are marks, also of the queue that they block, and a circuit
// that an operator opens is one mark.
func TestMarksOfACircuit(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{"circuit_header":"Bank"}`, nil)
		h.consume("orders", 20)
		h.must(api.VerbConfigSet, "circuit:bank:threshold", `{"value":"1"}`, nil)
		time.Sleep(2 * time.Hour)
		h.enqueue("orders", "x", nats.Header{"Bank": {"bank"}})
		text, name, _ := h.shards.Subjects.ParseToken(h.one().Reply)
		token, err := h.shards.Signer.Parse(text, name)
		require.NoError(t, err)
		require.Nil(t, h.shards.Queue(name).Ack(token, wire.Ack{Kind: wire.AckNack}, "", &nats.Subscription{}))
		time.Sleep(time.Second)
		h.enqueue("orders", "y", nats.Header{"Bank": {"bank"}})
		h.must(api.VerbAttention, "", ``, nil)
		for _, about := range []string{`{"circuit":"bank"}`, `{"queue":"orders"}`} {
			var reply api.Marks
			h.must(api.VerbMarks, "", about, &reply)
			require.Len(t, reply.Marks, 1, about)
			require.Equal(t, "circuit | circuit:bank | opened: failures | failures |", shownMark(reply.Marks[0]))
		}
		time.Sleep(time.Minute)
		h.must(api.VerbCircuitClose, "bank", ``, nil)
		h.must(api.VerbCircuitOpen, "bank", ``, nil)
		var reply api.Marks
		h.must(api.VerbMarks, "", `{"circuit":"bank"}`, &reply)
		require.Len(t, reply.Marks, 3)
	})
}

// TestAnnotate refuses texts and times that no chart can show, and keeps times of the last hour.
func TestAnnotate(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		body := func(text, at string) string {
			data, err := json.Marshal(api.AnnotateRequest{Text: text, At: at})
			require.NoError(t, err)
			return string(data)
		}
		ago := func(d time.Duration) string { return wire.Timestamp(h.shards.Now() - int64(d)) }
		for _, bad := range []string{
			body("", ""), body(" ", ""), body(strings.Repeat("x", 201), ""), body("two\nlines", ""), body("a\u202eb", ""), body("a\x1b[2J", ""), `{"text":"a\u0000"}`,
			body("x", "yesterday"), body("x", ago(-time.Second)), body("x", ago(time.Hour+time.Second)), body("x", "61m"), body("x", "-1m"), body("x", "15"),
			`{"text":"x","queue":"a b"}`, `{"text":"x","more":1}`,
		} {
			err := h.ask(api.VerbAnnotate, "", bad, nil)
			require.NotNil(t, err, bad)
			require.Equal(t, 400, err.Code, bad)
		}
		require.Equal(t, wire.CodeQueueNotFound, h.ask(api.VerbAnnotate, "", `{"text":"x","queue":"nobody"}`, nil).ErrCode)
		var log api.ConfigLog
		h.must(api.VerbConfigLog, "", ``, &log)
		require.Zero(t, log.Total)

		long := strings.Repeat(`"`, 100) + strings.Repeat("<", 100)
		for _, at := range []string{"", ago(time.Hour), "15m", "0s"} {
			h.must(api.VerbAnnotate, "", body(long, at), nil)
		}
		var reply api.Marks
		h.must(api.VerbMarks, "", ``, &reply)
		require.Len(t, reply.Marks, 4)
		for _, m := range reply.Marks {
			require.Equal(t, long, m.Text)
		}
		require.Equal(t, ago(15*time.Minute), reply.Marks[2].At)
		require.Equal(t, ago(time.Hour), reply.Marks[3].At)
		time.Sleep(time.Second)
		reply = api.Marks{}
		h.must(api.VerbMarks, "", ``, &reply)
		require.Len(t, reply.Marks, 3, "one is older than an hour now")
	})
}

// TestQueueSources: queue-inspect says who set each setting; a script that is too long for the audit
// log hides nothing.
func TestQueueSources(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		script := "function on_failure(msg) return {} end -- " + strings.Repeat("x", 2000)
		h.must(api.VerbQueueCreate, "orders", fmt.Sprintf(`{"on_failure":%q,"max_bytes":1000,"max_depth":10}`, script), nil)
		var info api.QueueInfo
		h.must(api.VerbQueueInspect, "orders", ``, &info)
		for _, name := range []string{"max_bytes", "on_failure", "max_depth"} {
			require.Equal(t, "tester", info.Sources[name].Client, name)
			require.NotEmpty(t, info.Sources[name].At)
		}
		require.Equal(t, api.Source{By: "default"}, info.Sources["quantum"])
		var log api.ConfigLog
		h.must(api.VerbConfigLog, "", `{"prefix":"queue:orders"}`, &log)
		require.JSONEq(t, `{"on_failure":"2,042 bytes","max_bytes":1000,"max_depth":10}`, *log.Entries[0].New)
		h.must(api.VerbQueueInspect, "orders.dlq", ``, &info)
	})
}

// TestThrottleListHasWaitingMessages of the last sample, and what the gate has admitted and blocked.
func TestThrottleListHasWaitingMessages(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{"throttle_headers":["Gate"]}`, nil)
		h.must(api.VerbThrottleSet, "vendor", `{"concurrency":2}`, nil)
		h.consume("orders", 10)
		for range 5 {
			h.enqueue("orders", "x", nats.Header{"Gate": {"vendor"}})
		}
		h.must(api.VerbAttention, "", ``, nil)
		var list api.ThrottleList
		h.must(api.VerbThrottleList, "", ``, &list)
		require.EqualValues(t, 3, list.Throttles[0].WaitingMessages)
		require.EqualValues(t, 2, list.Throttles[0].Admitted)
		require.EqualValues(t, 1, list.Throttles[0].Blocked, "the first message of its flow")
		require.EqualValues(t, 2, list.Throttles[0].InFlight)
	})
}
