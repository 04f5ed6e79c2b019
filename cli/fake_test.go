package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// result is what a run of the command left behind.
type result struct {
	code     int
	out, err string
}

func runCLI(t *testing.T, in string, args ...string) result {
	t.Helper()
	return runApp(t, t.Context(), &app{}, in, args...)
}

func runApp(t *testing.T, ctx context.Context, a *app, in string, args ...string) result {
	t.Helper()
	var out, errOut lockedBuffer
	code := run(ctx, a, newRootCommand(a), args, strings.NewReader(in), &out, &errOut)
	return result{code, out.String(), errOut.String()}
}

// lockedBuffer is an output that a test may read while the command runs.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// isolate keeps the settings of whoever runs the tests out of them.
func isolate(t *testing.T) (configHome string) {
	t.Helper()
	for _, name := range variables {
		t.Setenv(name, "")
	}
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	return dir
}

func startNATS(t *testing.T, change func(*server.Options)) *server.Server {
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

// fakeFila answers requests as a test tells it. NATS_URL points at its server.
type fakeFila struct {
	t    *testing.T
	nc   *nats.Conn
	got  chan *nats.Msg
	subj wire.Subjects
}

func startFake(t *testing.T) *fakeFila {
	t.Helper()
	isolate(t)
	srv := startNATS(t, nil)
	t.Setenv("NATS_URL", srv.ClientURL())
	nc, err := nats.Connect(srv.ClientURL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	subj, err := wire.NewSubjects("fila")
	require.NoError(t, err)
	return &fakeFila{t: t, nc: nc, got: make(chan *nats.Msg, 1000), subj: subj}
}

func (f *fakeFila) handle(subject string, fn func(msg *nats.Msg) any) {
	f.t.Helper()
	_, err := f.nc.Subscribe(subject, func(msg *nats.Msg) {
		f.got <- msg
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
			require.NoError(f.t, err)
			reply.Data = data
		}
		if msg.Reply != "" {
			require.NoError(f.t, f.nc.PublishMsg(reply))
		}
	})
	require.NoError(f.t, err)
	require.NoError(f.t, f.nc.Flush())
}

// answer replies to a subject always with the same.
func (f *fakeFila) answer(subject string, v any) {
	f.handle(subject, func(*nats.Msg) any { return v })
}

func (f *fakeFila) next() *nats.Msg {
	f.t.Helper()
	select {
	case msg := <-f.got:
		return msg
	case <-time.After(10 * time.Second):
		require.FailNow(f.t, "no request came")
		return nil
	}
}

// guests is one user, guest with the password guest, who may not subscribe to a
// subject.
func guests(denied string) []*server.User {
	return []*server.User{{Username: "guest", Password: "guest", Permissions: &server.Permissions{
		Subscribe: &server.SubjectPermission{Deny: []string{denied}},
	}}}
}

// runAt runs a command whose clock stands at 12:00 on the 2nd of January 2026,
// UTC.
func runAt(t *testing.T, args ...string) result {
	t.Helper()
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	return runApp(t, t.Context(), &app{clock: func() time.Time { return noon }}, "", args...)
}

// text joins the lines of an expected output.
func text(lines ...string) string { return strings.Join(lines, "\n") + "\n" }

// runRaw runs a command with streams of its own.
func runRaw(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	a := &app{}
	return run(ctx, a, newRootCommand(a), args, in, out, errOut)
}
