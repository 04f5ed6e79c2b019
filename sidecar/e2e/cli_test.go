package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// result is the output and exit code of a command.
type result struct {
	out, err string
	code     int
}

// fila runs a command against the process.
func (p *proc) fila(t testing.TB, args ...string) result {
	t.Helper()
	return p.filaIn(t, "", args...)
}

// filaIn is fila with standard input.
func (p *proc) filaIn(t testing.TB, in string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(cleanEnv(), "NATS_URL="+p.URL, "XDG_CONFIG_HOME="+t.TempDir())
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &errOut
	err := cmd.Run()
	require.NoError(t, ctx.Err(), "fila %v hangs", args)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return result{out.String(), errOut.String(), cmd.ProcessState.ExitCode()}
}

// ok runs a command that must succeed and returns its output.
func (p *proc) ok(t testing.TB, args ...string) string {
	t.Helper()
	r := p.fila(t, args...)
	require.Zero(t, r.code, "fila %v: %s", args, r.err)
	return r.out
}

// okJSON is ok with --json, decoded.
func (p *proc) okJSON(t testing.TB, into any, args ...string) {
	t.Helper()
	out := p.ok(t, append(args, "--json")...)
	require.NoError(t, json.Unmarshal([]byte(out), into), "fila %v printed %q", args, out)
}

func TestCommandLineQueues(t *testing.T) {
	p := shared(t)
	queue := unique(t)
	script := filepath.Join(t.TempDir(), "hook.lua")
	require.NoError(t, os.WriteFile(script, []byte(byTenant), 0o600))
	p.ok(t, "queue", "create", queue, "--on-enqueue", script, "--visibility-timeout", "45s", "--max-deliveries", "7", "--quantum", "2")
	p.ok(t, "queue", "create", queue, "--on-enqueue", script, "--visibility-timeout", "45s", "--max-deliveries", "7", "--quantum", "2")
	require.Equal(t, 5, p.fila(t, "queue", "create", queue).code, "it exists with other settings")
	var info queueInfo
	p.okJSON(t, &info, "queue", "inspect", queue)
	require.Equal(t, queue, info.Name)
	require.EqualValues(t, 45_000, info.Settings["visibility_timeout_ms"])
	require.EqualValues(t, 7, info.Settings["max_deliveries"])
	require.EqualValues(t, 2, info.Quantum)
	require.Equal(t, byTenant, info.Settings["on_enqueue"])
	p.ok(t, "queue", "update", queue, "--max-depth", "1")
	p.okJSON(t, &info, "queue", "inspect", queue)
	require.EqualValues(t, 1, info.Settings["max_depth"])
	require.EqualValues(t, 7, info.Settings["max_deliveries"], "other settings stay")
	require.Contains(t, p.ok(t, "queue", "inspect", queue), queue)
	require.Contains(t, p.ok(t, "queue", "list"), queue)
	var list struct {
		Queues []queueInfo `json:"queues"`
	}
	p.okJSON(t, &list, "queue", "list")
	require.NotEmpty(t, list.Queues)

	p.ok(t, "publish", queue, "x", "-H", "tenant=acme")
	full := p.fila(t, "publish", queue, "y")
	require.Equal(t, 6, full.code)
	require.Len(t, strings.Split(strings.TrimSpace(full.err), "\n"), 1, "one line: %s", full.err)
	require.Equal(t, 5, p.fila(t, "queue", "delete", queue).code, "it has messages")
	p.ok(t, "queue", "delete", queue, "--force")
	require.Equal(t, 4, p.fila(t, "queue", "inspect", queue).code)
	require.Equal(t, 4, p.fila(t, "publish", queue, "x").code)
}

func TestCommandLineRefusesABadHook(t *testing.T) {
	p := shared(t)
	script := filepath.Join(t.TempDir(), "hook.lua")
	require.NoError(t, os.WriteFile(script, []byte("function on_enqueue(msg)\n  return }\nend"), 0o600))
	r := p.fila(t, "queue", "create", unique(t), "--on-enqueue", script)
	require.NotZero(t, r.code)
	require.Contains(t, r.err, "2", "the line")
}

func TestCommandLineMessages(t *testing.T) {
	p := shared(t)
	c := p.client(t)
	queue := c.newQueue(m{"fairness_header": "tenant"})
	id := strings.TrimSpace(p.ok(t, "publish", queue, "hello", "--header", "tenant=acme"))
	r := p.filaIn(t, "from stdin", "publish", queue)
	require.Zero(t, r.code, r.err)
	var sent enqueued
	p.okJSON(t, &sent, "publish", queue, "third", "--dedupe-id", "d")
	require.NotEmpty(t, sent.ID)
	var again enqueued
	p.okJSON(t, &again, "publish", queue, "third", "--dedupe-id", "d")
	require.Equal(t, enqueued{ID: sent.ID, Queue: queue, Duplicate: true}, again)
	p.ok(t, "publish", queue, "later", "--delay", "1h")
	require.EqualValues(t, 1, c.inspect(queue).Delayed)

	var first struct {
		ID      string              `json:"id"`
		Key     string              `json:"key"`
		Payload string              `json:"payload"`
		Attempt int                 `json:"attempt"`
		Headers map[string][]string `json:"headers"`
	}
	p.okJSON(t, &first, "consume", queue, "--count", "1")
	require.Contains(t, []string{"hello", "from stdin"}, first.Payload)
	require.Equal(t, 1, first.Attempt)
	if first.Payload == "hello" {
		require.Equal(t, id, first.ID)
		require.Equal(t, "acme", first.Key)
	}
	lines := strings.Split(strings.TrimSpace(p.ok(t, "consume", queue, "--count", "2")), "\n")
	require.ElementsMatch(t, []string{"hello", "from stdin", "third"}, append(lines, first.Payload))
	c.waitDepth(queue, 1)

	require.Equal(t, 4, p.fila(t, "publish", unique(t), "x").code, "no such queue")
	require.Equal(t, 4, p.fila(t, "consume", unique(t), "--count", "1").code)
	require.NotZero(t, p.fila(t, "publish", queue+".dlq", "x").code)
}

func TestCommandLineRedrive(t *testing.T) {
	p := shared(t)
	c := p.client(t)
	queue, ids := deadLetters(c, 3, nil)
	require.Contains(t, p.ok(t, "redrive", queue, "--count", "1"), "1", "the name of the queue means its dead letters")
	var reply struct {
		Redriven int `json:"redriven"`
	}
	p.okJSON(t, &reply, "redrive", queue+".dlq")
	require.Equal(t, 2, reply.Redriven)
	for i, d := range c.consume(queue, 1).drain(3) {
		require.Equal(t, ids[i], d.id())
	}
	require.Equal(t, 4, p.fila(t, "redrive", unique(t)).code)
	require.Equal(t, 4, p.fila(t, "redrive", unique(t)+".dlq").code)
}

// setting is a reply about one key of the runtime configuration.
type setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

func TestCommandLineConfig(t *testing.T) {
	p := shared(t)
	key := unique(t) + ":a"
	p.ok(t, "config", "set", key, "one")
	require.Equal(t, "one\n", p.ok(t, "config", "get", key))
	p.ok(t, "config", "set", key, "two", "--if-value", "one")
	require.Equal(t, 5, p.fila(t, "config", "set", key, "three", "--if-value", "one").code)
	require.Contains(t, p.ok(t, "config", "list", key), "two")
	var list struct {
		Total   int       `json:"total"`
		Entries []setting `json:"entries"`
	}
	p.okJSON(t, &list, "config", "list", key)
	require.Equal(t, []setting{{Key: key, Value: "two"}}, list.Entries)
	p.ok(t, "config", "delete", key)
	require.Equal(t, 4, p.fila(t, "config", "get", key).code)
	require.NotZero(t, p.fila(t, "config", "set", "throttle:x:rate", "fast").code)
}

func TestCommandLineConnection(t *testing.T) {
	p := shared(t)
	require.NotEmpty(t, p.ok(t, "version"))
	var version m
	p.okJSON(t, &version, "version")
	require.NotEmpty(t, version["version"])
	for _, shell := range []string{"bash", "zsh", "fish"} {
		require.NotEmpty(t, p.ok(t, "completion", shell))
	}
	p.ok(t, "queue", "list", "--server", p.URL)
	for _, args := range [][]string{
		{"queue", "list", "--server", "nats://127.0.0.1:1"},
		{"publish", "q", "x", "--server", "nats://127.0.0.1:1"},
	} {
		r := p.fila(t, args...)
		require.Equal(t, 7, r.code, "%v: %s", args, r.err)
		require.Len(t, strings.Split(strings.TrimSpace(r.err), "\n"), 1, r.err)
	}
	for _, args := range [][]string{{"no-such-command"}, {"queue", "create"}, {"publish", "q", "x", "--no-such-flag"}, {"queue", "create", "q", "--visibility-timeout", "soon"}} {
		require.Equal(t, 2, p.fila(t, args...).code, "%v", args)
	}
}
