package clitest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire"
)

// Result is the result of a run of a command.
type Result struct {
	Code     int
	Out, Err string
}

// Ended is a Result.
func Ended(code int, out, errOut string) Result { return Result{code, out, errOut} }

// Program is the commands under test.
type Program func(*command.Env) []*cobra.Command

// Run runs a command line with in as standard input.
func (p Program) Run(t *testing.T, in string, args ...string) Result {
	t.Helper()
	return p.RunEnv(t, t.Context(), &command.Env{}, in, args...)
}

// RunAt runs a command line whose clock shows noon.
func (p Program) RunAt(t *testing.T, args ...string) Result {
	t.Helper()
	return p.RunEnv(t, t.Context(), &command.Env{Clock: Noon}, "", args...)
}

// RunEnv runs a command line until it ends or ctx does.
func (p Program) RunEnv(t *testing.T, ctx context.Context, env *command.Env, in string, args ...string) Result {
	t.Helper()
	var out, errOut Buffer
	code := command.Run(ctx, env, env.Root(p(env)...), args, strings.NewReader(in), &out, &errOut)
	return Result{code, out.String(), errOut.String()}
}

// Mistakes runs invalid command lines, and requires that each fails with one line that contains
// its text and without standard output.
func (p Program) Mistakes(t *testing.T, lines map[string]string) {
	t.Helper()
	for line, want := range lines {
		r := p.RunAt(t, strings.Fields(line)...)
		require.Equal(t, command.ExitUsage, r.Code, "%s: %s", line, r.Err)
		require.Contains(t, r.Err, want, line)
		require.True(t, strings.HasPrefix(r.Err, "fila: "), r.Err)
		require.Equal(t, 1, strings.Count(r.Err, "\n"), "one line: %s", r.Err)
		require.Empty(t, r.Out, line)
	}
}

// Running is a running command line.
type Running struct {
	Out, Err Buffer
	Stop     context.CancelFunc // acts as the first signal
	Code     chan int           // receives the exit code
}

// Start starts a command line that runs until it is stopped.
func (p Program) Start(t *testing.T, in io.Reader, args ...string) *Running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	r := &Running{Stop: stop, Code: make(chan int, 1)}
	go func() { r.Code <- p.Exec(ctx, args, in, &r.Out, &r.Err) }()
	return r
}

// OK requires that a command line succeeded.
func OK(t *testing.T, r Result) Result {
	t.Helper()
	require.Equal(t, command.ExitOK, r.Code, r.Err)
	return r
}

// Complains requires that a command line ended with a code and a message.
func Complains(t *testing.T, r Result, code int, what string) {
	t.Helper()
	require.Equal(t, code, r.Code, r.Err)
	require.Contains(t, r.Err, what)
}

// JSON decodes the output of a successful command line.
func JSON[T any](t *testing.T, r Result) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(OK(t, r).Out), &v), r.Out)
	return v
}

// Exec runs a command line with the given streams.
func (p Program) Exec(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	env := &command.Env{}
	return command.Run(ctx, env, env.Root(p(env)...), args, in, out, errOut)
}

// Noon is 12:00 on the 2nd of January 2026, UTC.
func Noon() time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) }

// Buffer is an output that a test may read while the command runs.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Isolate hides the user's settings from tests.
func Isolate(t *testing.T) (configHome string) {
	t.Helper()
	for _, name := range command.Variables() {
		t.Setenv(name, "")
	}
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	return dir
}

// StartNATS starts a NATS server that stops with the test; change may be nil.
func StartNATS(t *testing.T, change func(*server.Options)) *server.Server {
	t.Helper()
	opts := &server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true}
	if change != nil {
		change(opts)
	}
	srv, err := server.NewServer(opts)
	require.NoError(t, err)
	srv.Start()
	require.True(t, srv.ReadyForConnections(5*time.Second))
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	return srv
}

// Fake is a fila with answers that a test sets. NATS_URL is its server's address.
type Fake struct {
	T        *testing.T
	NC       *nats.Conn
	Got      chan *nats.Msg
	Subjects wire.Subjects
	handlers map[string]*nats.Subscription // by subject
}

// StartFake starts a fila without answers.
func StartFake(t *testing.T) *Fake {
	t.Helper()
	Isolate(t)
	srv := StartNATS(t, nil)
	t.Setenv("NATS_URL", srv.ClientURL())
	nc, err := nats.Connect(srv.ClientURL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	subj, err := wire.NewSubjects("fila")
	require.NoError(t, err)
	return &Fake{T: t, NC: nc, Got: make(chan *nats.Msg, 1000), Subjects: subj, handlers: map[string]*nats.Subscription{}}
}

// Handle answers a subject with the result of fn: an error, bytes, a value as JSON, or nil for
// no answer. It replaces the previous handler.
func (f *Fake) Handle(subject string, fn func(msg *nats.Msg) any) {
	f.T.Helper()
	if before := f.handlers[subject]; before != nil {
		require.NoError(f.T, before.Unsubscribe())
	}
	sub, err := f.NC.Subscribe(subject, func(msg *nats.Msg) {
		f.Got <- msg
		reply := nats.NewMsg(msg.Reply)
		switch v := fn(msg).(type) {
		case nil:
			return
		case *wire.Error:
			reply.Header, reply.Data = v.Headers(), v.Body()
		case []byte:
			reply.Data = v
		default:
			data, err := json.Marshal(v)
			require.NoError(f.T, err)
			reply.Data = data
		}
		if msg.Reply == "" {
			return
		}
		if err := f.NC.PublishMsg(reply); !errors.Is(err, nats.ErrConnectionClosed) { // the test is over
			require.NoError(f.T, err)
		}
	})
	require.NoError(f.T, err)
	f.handlers[subject] = sub
	require.NoError(f.T, f.NC.Flush())
}

// Answer always sends the same reply on a subject.
func (f *Fake) Answer(subject string, v any) {
	f.Handle(subject, func(*nats.Msg) any { return v })
}

// Shows answers a subject with a reply, and requires that a command line shows it as these
// lines at noon, and completely with --json.
func Shows[T any](f *Fake, p Program, line, subject string, reply T, lines ...string) {
	f.T.Helper()
	f.Answer(subject, reply)
	args := strings.Fields(line)
	require.Equal(f.T, Ended(command.ExitOK, Lines(lines...), ""), p.RunAt(f.T, args...), line)
	require.Equal(f.T, reply, JSON[T](f.T, p.RunAt(f.T, append(args, "--json")...)), line)
}

// Next returns the next request.
func (f *Fake) Next() *nats.Msg {
	f.T.Helper()
	select {
	case msg := <-f.Got:
		return msg
	case <-time.After(10 * time.Second):
		require.FailNow(f.T, "no request came")
		return nil
	}
}

// Lines joins the lines of an expected output.
func Lines(lines ...string) string { return strings.Join(lines, "\n") + "\n" }

// WriteFile writes a file in a new directory and returns its path.
func WriteFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
