package messagecmd

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/wire"
)

var program = clitest.Program(Commands)

// intake confirms enqueues at once or as a test decides. Like an older fila it knows no batches.
func intake(f *clitest.Fake, refuse func(n int64, msg *nats.Msg) *wire.Error) *atomic.Int64 {
	var n atomic.Int64
	f.Handle("fila.enqueue.orders", func(msg *nats.Msg) any {
		if msg.Header.Get(wire.HeaderBatch) != "" {
			return wire.HeaderReserved(wire.HeaderBatch, "")
		}
		if e := refuse(n.Add(1), msg); e != nil {
			return e
		}
		return wire.EnqueueReply{ID: fmt.Sprintf("id-%d", n.Load()), Queue: "orders"}
	})
	return &n
}

func takeAll(int64, *nats.Msg) *wire.Error { return nil }

const summaryLine = `^%s published to orders in \S+ \(\S+/s\)%s\n$`

// A header is name=value, or name:value as in curl.
func TestPublishHeaders(t *testing.T) {
	f := clitest.StartFake(t)
	intake(f, takeAll)
	for header, want := range map[string]string{
		"tenant=acme": "acme", "tenant:acme": "acme", "tenant: acme": "acme", "tenant=a:b": "a:b", "tenant:a=b": "a=b",
		"tenant:": "", "tenant=": "",
	} {
		clitest.OK(t, program.Run(t, "", "publish", "orders", "x", "-H", header))
		msg := f.Next()
		require.Equal(t, []string{want}, msg.Header["tenant"], header)
	}
}

func TestPublishCount(t *testing.T) {
	f := clitest.StartFake(t)
	intake(f, takeAll)
	r := clitest.OK(t, program.Run(t, "", "publish", "orders", "x", "--count", "900", "--window", "10", "--dedupe-id", "d", "-H", "a=b", "--rate", "1e9"))
	require.Empty(t, r.Err)
	require.Regexp(t, fmt.Sprintf(summaryLine, "900 messages", ""), r.Out)
	ids := map[string]bool{}
	for range 900 {
		msg := <-f.Got
		for msg.Header.Get(wire.HeaderBatch) != "" { // refused, see intake
			msg = <-f.Got
		}
		require.Equal(t, "x", string(msg.Data))
		require.Equal(t, "b", msg.Header.Get("a"))
		ids[msg.Header.Get("Nats-Msg-Id")] = true
	}
	require.Len(t, ids, 900)
	require.True(t, ids["d-1"] && ids["d-900"])

	summary := clitest.JSON[publishSummary](t, program.Run(t, "", "publish", "orders", "x", "--count", "2", "--json"))
	require.Equal(t, []any{"orders", int64(2), int64(2)}, []any{summary.Queue, summary.Sent, summary.Confirmed})
	r = program.Run(t, "", "publish", "orders", "x", "--count", "2", "-q")
	require.Equal(t, clitest.Ended(command.ExitOK, "", ""), r)
}

func TestPublishLines(t *testing.T) {
	f := clitest.StartFake(t)
	intake(f, takeAll)
	file := clitest.WriteFile(t, "lines", "a\r\n\n"+strings.Repeat("b", 100_000)+"\nno end")
	for _, args := range [][]string{{"--file", file}, {"-"}, {}} {
		in := ""
		if len(args) != 2 {
			in = "a\n\n" + strings.Repeat("b", 100_000) + "\nno end"
		}
		r := clitest.OK(t, program.Run(t, in, append([]string{"publish", "orders", "--lines"}, args...)...))
		require.Regexp(t, fmt.Sprintf(summaryLine, "4 messages", ""), r.Out)
		var got []string
		for range 4 {
			got = append(got, string(f.Next().Data))
		}
		require.Equal(t, []string{"a", "", strings.Repeat("b", 100_000), "no end"}, got)
	}
	r := program.Run(t, "", "publish", "orders", "--lines")
	require.Regexp(t, fmt.Sprintf(summaryLine, "0 messages", ""), r.Out)
}

func TestPublishJSONLines(t *testing.T) {
	f := clitest.StartFake(t)
	intake(f, takeAll)
	r := program.Run(t, `{"payload":"text","headers":{"tenant":"acme","many":["1","2"]},"dedupe_id":"x","delay":"1s","ttl":"5s"}

{"payload":{"a": [1]}}
{"payload_base64":"/wA=","id":"i","queue":"q","key":"k","attempt":1,"enqueued_at":"t","headers":{"Fila-Id":["i"],"Fila-Source-Queue":"s","Fila-Delay":"2s","Fila-Ids":"fila refuses it"}}
`, "publish", "orders", "--jsonl", "-H", "tenant=flag", "-H", "z=1", "--dedupe-id", "d")
	require.Equal(t, command.ExitOK, r.Code, r.Err)
	require.Regexp(t, fmt.Sprintf(summaryLine, "3 messages", ""), r.Out)
	for _, want := range []nats.Msg{
		{Data: []byte("text"), Header: nats.Header{
			"tenant": {"acme"}, "many": {"1", "2"}, "z": {"1"}, "Nats-Msg-Id": {"x"}, "Fila-Delay": {"1s"}, "Nats-TTL": {"5s"},
		}},
		{Data: []byte(`{"a": [1]}`), Header: nats.Header{"tenant": {"flag"}, "z": {"1"}, "Nats-Msg-Id": {"d-3"}}},
		{Data: []byte("\xff\x00"), Header: nats.Header{"tenant": {"flag"}, "z": {"1"}, "Nats-Msg-Id": {"d-4"}, "Fila-Delay": {"2s"}, "Fila-Ids": {"fila refuses it"}}},
	} {
		msg := f.Next()
		require.Equal(t, string(want.Data), string(msg.Data))
		require.Equal(t, want.Header, msg.Header)
	}

	for line, want := range map[string]string{
		`{"headers":{}}`: "payload is missing: allowed is",
		`{"payload":"a","payload_base64":"YQ=="}`:  "one of them is allowed",
		`{"payload":"a","header":{}}`:              `unknown field "header"`,
		`{"payload":"a","headers":{"a b":"1"}}`:    `header "a b": allowed is one line`,
		`{"payload":"a","headers":{"a":1}}`:        "allowed is a string or a list of strings",
		`{"payload":"a","headers":{"a":"1\r\nb"}}`: "allowed is one line",
		`{"payload":"a","headers":{"a":"1\\x0a"}}`: "allowed is one line",
		`{"payload":"a","delay":"soon"}`:           "delay: ",
		`{"payload":"a"`:                           "bad JSON",
		`text`:                                     "bad JSON",
	} {
		r := program.Run(t, "\n"+line+"\n", "publish", "orders", "--jsonl")
		require.Equal(t, command.ExitUsage, r.Code, line)
		require.True(t, strings.HasPrefix(r.Err, "fila: line 2: "), r.Err)
		require.Contains(t, r.Err, want)
	}
}

func TestPublishWaitsWhereFilaTakesNoMore(t *testing.T) {
	f := clitest.StartFake(t)
	full := &wire.Error{Code: 429, ErrCode: wire.CodeBacklogMessages, Description: "queue is full", RetryAfter: time.Millisecond}
	n := intake(f, func(n int64, _ *nats.Msg) *wire.Error {
		if n%3 == 1 {
			return full
		}
		return nil
	})
	r := clitest.OK(t, program.Run(t, "", "publish", "orders", "x", "--count", "10"))
	require.Regexp(t, fmt.Sprintf(summaryLine, "10 messages", ""), r.Out)
	require.EqualValues(t, 15, n.Load(), "each refused one was sent again")

	n.Store(0)
	clitest.Complains(t, program.Run(t, "", "publish", "orders", "x"), command.ExitRefused, "queue is full (retry in 1ms) [err_code 10429]")
	n.Store(1)
	r = program.Run(t, "", "publish", "orders", "x", "--count", "10", "--no-retry", "--window", "1")
	require.Equal(t, command.ExitRefused, r.Code)
	require.Regexp(t, fmt.Sprintf(summaryLine, "2 messages", "; sent as well, and refused or not confirmed: 1"), r.Out)
	require.Contains(t, r.Err, "fila: message 3: queue is full")
}

func TestPublishStopsAtTheFirstRefusal(t *testing.T) {
	f := clitest.StartFake(t)
	n := intake(f, func(n int64, msg *nats.Msg) *wire.Error {
		if string(msg.Data) == "bad" {
			return &wire.Error{Code: 413, ErrCode: wire.CodeMessageTooLarge, Description: "too large"}
		}
		return nil
	})
	r := program.Run(t, "a\nbad\nc\nd\n", "publish", "orders", "--lines", "--window", "1", "--json")
	require.Equal(t, command.ExitUsage, r.Code)
	require.JSONEq(t, `{"error":{"code":413,"err_code":10413,"name":"message_too_large","description":"message 2: too large"}}`, r.Err)
	var summary publishSummary
	require.NoError(t, json.Unmarshal([]byte(r.Out), &summary))
	require.Equal(t, []int64{2, 1}, []int64{summary.Sent, summary.Confirmed})
	require.Contains(t, summary.Error, "message 2")
	require.EqualValues(t, 2, n.Load())

	clitest.StartFake(t) // it does not wait for a queue that may not exist
	clitest.Complains(t, program.Run(t, "", "publish", "orders", "x", "--count", "10"), command.ExitConnect, "no fila listens")
}

func TestPublishManyUnconfirmed(t *testing.T) {
	f := clitest.StartFake(t)
	intake(f, takeAll)
	r := clitest.OK(t, program.Run(t, "", "publish", "orders", "x", "--count", "5", "--no-confirm"))
	require.Regexp(t, fmt.Sprintf(`^%s published to orders, not confirmed, in `, "5 messages"), r.Out)
	for range 5 {
		require.Empty(t, f.Next().Reply)
	}
}

// An interrupt ends it, even while it waits for input or for the rate limit.
func TestPublishInterrupted(t *testing.T) {
	f := clitest.StartFake(t)
	intake(f, takeAll)
	for _, args := range [][]string{{"--lines"}, {"--count", "5", "--rate", "0.0001", "x"}} {
		in, feed := io.Pipe()
		r := program.Start(t, in, append([]string{"publish", "orders"}, args...)...)
		if args[0] == "--lines" {
			_, err := feed.Write([]byte("one\n"))
			require.NoError(t, err)
		}
		f.Next()
		r.Stop()
		require.Equal(t, command.ExitFailed, <-r.Code)
		require.Equal(t, "fila: interrupted\n", r.Err.String())
		require.Contains(t, r.Out.String(), "1 message published to orders")
		require.NoError(t, feed.Close())
	}
}

func TestPublishMistakes(t *testing.T) {
	clitest.Isolate(t)
	program.Mistakes(t, map[string]string{
		"publish q --lines --jsonl":        "one of them is allowed",
		"publish q --lines --count 2":      "--count repeats one message",
		"publish q x --count 0":            "--count 0: allowed is 1 and more",
		"publish q x --rate 0":             "--rate 0: allowed is more than 0",
		"publish q x --rate -1":            "--rate -1",
		"publish q x --rate NaN":           "--rate NaN",
		"publish q x --window 0":           "--window 0: allowed are 1 to 65536",
		"publish q x --file f":             "TEXT and --file",
		"publish q x --lines":              "the messages come from --file or standard input",
		"publish q --file nosuch":          "--file nosuch: no such file or directory",
		"publish q x -H a":                 "name=value",
		"publish q x --dedupe-id=":         "--dedupe-id is empty",
		"publish q --lines --file no/such": "no such file or directory",
	})
}

func TestProgressBar(t *testing.T) {
	var out strings.Builder
	b := &progressBar{w: &out, total: 10}
	require.Equal(t, "[===============               ] 5 of 10, 5/s, 1s left", b.text(5, time.Second))
	require.Equal(t, "[==============================] 10 of 10, 10/s", b.text(10, time.Second))
	require.Equal(t, "12,345 published, 12.3k/s", (&progressBar{}).text(12_345, time.Second))
	b.draw(1, time.Second)
	b.draw(2, time.Second+barEvery/2)
	require.Equal(t, 1, strings.Count(out.String(), "\r"), "not more often than anybody can see")
	b.draw(10, time.Second+barEvery/2)
	b.end()
	require.True(t, strings.HasSuffix(out.String(), "10 of 10, 9.5/s"+terminal.EraseLine+"\r"+terminal.EraseLine), "%q", out.String())
	var none *progressBar
	none.draw(1, 0)
	none.end()
}
