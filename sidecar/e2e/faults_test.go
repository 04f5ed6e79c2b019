package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/e2e/natstest"
	"github.com/filaq/fila/store"
)

// fault is a failing system call on the store's file. strace counts calls per thread, and Go
// moves goroutines between threads, so the n-th call is a random moment nearby.
type fault struct {
	call string // as strace names it
	how  string // error=... or signal=...
	when int    // the n-th call of a thread only; 0: every call after the disk breaks
}

// says returns the text that fila must log about the fault.
func (f fault) says() string {
	switch f.how {
	case "error=EIO":
		return "input/output error"
	case "error=ENOSPC":
		return "no space left on device"
	case "error=EDQUOT":
		return "disk quota exceeded"
	}
	return ""
}

func (f fault) String() string { return fmt.Sprintf("%s %s when=%d", f.call, f.how, f.when) }

// file is the path of the store.
func (p *proc) file() string { return filepath.Join(p.Dir, "fila.db") }

// broken is the name of the store under which its system calls fail: strace filters by the
// current name of an open file, so a rename breaks the disk at a chosen moment.
func (p *proc) broken() string { return filepath.Join(p.Dir, "broken.db") }

func (p *proc) breakDisk(t testing.TB) { require.NoError(t, os.Rename(p.file(), p.broken())) }

// mendDisk renames the store back after the process has ended. It is safe to repeat.
func (p *proc) mendDisk(t testing.TB) {
	t.Helper()
	if err := os.Rename(p.broken(), p.file()); !errors.Is(err, os.ErrNotExist) {
		require.NoError(t, err)
	}
}

const storeCalls = "pwrite64,fdatasync,fsync,ftruncate"

func (p *proc) trace() string { return filepath.Join(p.opts.dir, "trace") }

// strace returns the strace command to run fila under. With -D strace is the child, so the
// process is fila and strace ends with it.
func (p *proc) strace(path string, args ...string) []string {
	return append([]string{
		"strace", "-D", "-f", "-qq", "-e", "signal=none",
		"-o", p.trace(), "-P", path, "-e", "trace=" + storeCalls,
	}, args...)
}

func (p *proc) withFault(f fault) []string {
	args := []string{"-e", "inject=" + f.call + ":" + f.how}
	if !strings.HasPrefix(f.how, "signal") {
		args = append(args, "--seccomp-bpf") // much faster, but cannot inject signals
	}
	if f.when == 0 {
		return p.strace(p.broken(), args...)
	}
	args[1] += ":when=" + strconv.Itoa(f.when)
	return p.strace(p.file(), args...)
}

// needStrace skips the test if strace is missing or may not trace. In CI strace must be there.
func needStrace(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("strace is a program for Linux")
	}
	if _, err := exec.LookPath("strace"); err != nil {
		require.NotEqual(t, "true", os.Getenv("CI"), "strace is missing")
		t.Skip("strace is missing: install it to let the disk fail under fila")
	}
	file := filepath.Join(t.TempDir(), "trace")
	out, err := exec.Command("strace", "-D", "-f", "-qq", "--seccomp-bpf", "-o", file, "-e", "trace=execve", "true").CombinedOutput()
	seen, _ := os.ReadFile(file)
	if bytes.Contains(seen, []byte("execve")) {
		return
	}
	text := strings.ToLower(string(out))
	if strings.Contains(text, "ptrace") || strings.Contains(text, "not permitted") || strings.Contains(text, "denied") {
		t.Skipf("this system does not let strace trace a process: %s", out)
	}
	require.Fail(t, "strace does not work", "%v: %s", err, out)
}

// failed waits for the end that a fault causes and checks it: fila ends by itself and names the
// fault, and its file is sound.
func (p *proc) failed(t testing.TB, about fmt.Stringer, says string) {
	t.Helper()
	code := p.WaitExit(t)
	p.mendDisk(t)
	if says == "" { // it was killed
		status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
		require.True(t, ok)
		require.True(t, status.Signaled(), "%v: exit code %d\n%s", about, code, p.log)
		require.Equal(t, syscall.SIGKILL, status.Signal())
	} else {
		require.Equal(t, 1, code, "%v: %s", about, p.log)
		lines := p.log.lines()
		last := lines[len(lines)-1]
		for _, part := range []string{"fila: ", p.file(), says} {
			require.Contains(t, last, part, "%v", about)
		}
		if !strings.Contains(last, "store: cannot open") { // the last commit is synced again then
			require.Contains(t, last, "store: a commit failed, its outcome is unknown until the store is reopened", "%v", about)
		}
		if p.parseReady() { // otherwise it says which part of the start failed
			require.Contains(t, last, "the store failed, nothing more is confirmed or delivered", "%v", about)
		}
	}
	check := p.fila(t, "store", "check", p.Dir)
	require.Zero(t, check.code, "%v: %s%s", about, check.out, check.err)
}

// TestDiskFails: calls on the store's file fail under load, once or from then on. Nothing
// confirmed is lost, and fila starts again on the file. See history.
func TestDiskFails(t *testing.T) {
	needStrace(t)
	t.Parallel()
	seed, rng := choices(t)
	faults := []fault{
		{"ftruncate", "error=ENOSPC", 1}, // the file grows only at the start
		{"fsync", "error=EIO", 1},        // of the new size
		{"fdatasync", "error=EIO", 1},
		{"pwrite64", "error=ENOSPC", 1},
		{"fdatasync", "error=EIO", 2 + rng.IntN(20)},
		{"pwrite64", "error=ENOSPC", 2 + rng.IntN(80)},
		{"pwrite64", "error=EIO", 2 + rng.IntN(80)},
		{"fdatasync", "error=EIO", 0},
		{"pwrite64", "error=ENOSPC", 0},
		{"fdatasync", "error=EDQUOT", 0},
		{"fdatasync", "signal=SIGKILL", 2 + rng.IntN(20)},
		{"pwrite64", "signal=SIGKILL", 2 + rng.IntN(80)},
	}
	if testing.Short() {
		faults = faults[4:9]
	}
	p := newFila(t, options{})
	l := newLoad(t, fmt.Sprintf("nats://127.0.0.1:%d", p.port), seed, nil, "orders", "mails.eu")
	l.t = unknownAllowed{t}
	begin := func(wrap []string) {
		l.h.started(time.Now().UnixNano())
		if wrap == nil {
			p.Start(t)
			return
		}
		require.NoError(t, p.start(wrap...))
		if err := p.waitReady(); err != nil {
			require.True(t, p.hasExited(), "%v\n%s", err, p.log)
		}
	}
	end := func() {
		l.phase.Load().cancel()
		l.newPhase()
	}
	begin(nil)
	c := p.client(t)
	l.setup(c)
	end()
	require.Zero(t, p.Stop(t))
	l.start()
	for _, f := range faults {
		begin(p.withFault(f))
		close(l.phase.Load().ready)
		if f.when == 0 {
			awaitMoment(l, p, rng)
			p.breakDisk(t)
		}
		p.failed(t, f, f.says())
		end()
		require.Empty(t, l.h.check(false).problems, "after %v", f)
	}
	p.fileLimit(t, begin, l)
	end()
	begin(nil)
	eventually(t, c.nc.IsConnected)
	close(l.phase.Load().ready)
	awaitMoment(l, p, rng)
	l.finish(p, c)
}

// unknownAllowed is for a load on a failing disk: a registration may end with an unknown
// outcome, and the consumer registers again.
type unknownAllowed struct{ testing.TB }

// Errorf implements testing.TB.
func (t unknownAllowed) Errorf(format string, args ...any) {
	t.Helper()
	if text := fmt.Sprintf(format, args...); !strings.Contains(text, `"err_code":10500`) {
		t.TB.Errorf("%s", text)
	}
}

// fileLimit starts fila with a limit on the file size in the middle of a page of the store: the
// system writes the part below it and refuses the rest.
func (p *proc) fileLimit(t testing.TB, begin func([]string), l *load) {
	t.Helper()
	info, err := os.Stat(p.file())
	require.NoError(t, err)
	kb := info.Size()/2/4096*4 + 1
	begin([]string{"bash", "-c", fmt.Sprintf(`ulimit -f %d && exec "$@"`, kb), "bash"})
	close(l.phase.Load().ready)
	p.failed(t, fault{call: "ulimit -f"}, "file too large")
}

// TestNothingIsConfirmedByABrokenDisk: the disk of an idle fila breaks. fila confirms nothing
// afterwards, and everything confirmed before is there.
func TestNothingIsConfirmedByABrokenDisk(t *testing.T) {
	needStrace(t)
	t.Parallel()
	for _, f := range []fault{{call: "fdatasync", how: "error=EIO"}, {call: "pwrite64", how: "error=ENOSPC"}, {call: "pwrite64", how: "error=EIO"}} {
		t.Run(f.call+" "+f.how, func(t *testing.T) {
			t.Parallel()
			n := natstest.Start(t) // it outlives fila, and so do late replies
			p := newFila(t, options{natsURL: n.URL})
			p.Start(t, p.withFault(f)...)
			c := dial(t, n.URL)
			c.createQueue("work", m{"visibility_timeout_ms": 3_600_000})
			c.createQueue("backlog", nil)
			confirmed := map[string]bool{}
			for i := range 4 {
				confirmed[c.enqueue("backlog", fmt.Sprint(i)).ID] = true
				confirmed[c.enqueue("work", fmt.Sprint(i)).ID] = true
			}
			k := c.consume("work", 3)
			leased := k.take(3)
			for _, d := range leased {
				c.accepted(d, "+WPI") // the lease is on disk, and no write is pending
			}
			p.breakDisk(t)

			inbox := nats.NewInbox()
			replies := make(chan *nats.Msg, 64)
			_, err := c.nc.ChanSubscribe(inbox, replies)
			require.NoError(t, err)
			for i := range 20 {
				msg := message("backlog", fmt.Sprint("too late ", i))
				msg.Reply = inbox
				require.NoError(t, c.nc.PublishMsg(msg))
			}
			for i, answer := range []string{"+ACK", "-NAK", "+TERM no use"} {
				require.NoError(t, c.nc.PublishMsg(&nats.Msg{Subject: leased[i].Reply, Reply: inbox, Data: []byte(answer)}))
			}
			p.failed(t, f, f.says())
			c.flush() // the replies before the end have arrived
			unknowns := 0
			for len(replies) > 0 {
				reply := <-replies
				if reply.Header.Get("Status") == "503" {
					continue // the server answers that fila is gone
				}
				e := errorOf(t, reply)
				require.NotNil(t, e, "a confirmation of what is not on disk: %q", reply.Data)
				require.Contains(t, []int{500, 503}, e.Code, "%v", e)
				if e.ErrCode == 10500 {
					unknowns++
				}
			}
			require.Positive(t, unknowns, "no producer got an unknown outcome")

			k.unsubscribe()
			p.Restart(t)
			seen := c.finishAll("backlog")
			for i, d := range leased {
				e := c.answer(d, "")
				if e == nil {
					seen[d.id()] = true
				}
				// If no page was written, nothing can have changed.
				require.False(t, e != nil && f.call == "pwrite64", "answer %d: %v", i, e)
			}
			seen[leased[0].id()] = true // its ack may be on disk
			maps.Copy(seen, c.finishAll("work"))
			maps.Copy(seen, c.finishAll("work.dlq"))
			for id := range confirmed {
				require.True(t, seen[id], "a confirmed message is lost")
			}
			require.Zero(t, p.Stop(t))
		})
	}
}

// TestAKillWhileACommitIsNoted leaves a file without a value, or with the one before. fila starts
// on both.
func TestAKillWhileACommitIsNoted(t *testing.T) {
	needStrace(t)
	t.Parallel()
	for when, says := range map[string]bool{"1": true, "2": false} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			p := newFila(t, options{})
			p.Start(t, p.strace(p.file()+".confirmed", "-e", "inject=pwrite64:signal=SIGKILL:when="+when)...)
			c := p.client(t)
			c.createQueue("q", nil)
			reached := func() bool {
				_ = c.nc.Publish("fila.enqueue.q", []byte("x")) // fila is being killed
				return p.hasExited()
			}
			eventually(t, reached)
			require.FileExists(t, p.file()+".confirmed")
			p.Restart(t)
			require.Equal(t, says, strings.Contains(p.log.String(), "the confirmed commits before this start are unknown"))
			require.Positive(t, p.client(t).depth("q"))
			require.Zero(t, p.Stop(t))
		})
	}
}

// finishAll consumes a queue until it is empty and returns the ids.
func (c *client) finishAll(queue string) map[string]bool {
	c.t.Helper()
	k := c.consume(queue, 64)
	seen := map[string]bool{}
	eventually(c.t, func() bool {
		for {
			select {
			case d := <-k.ch:
				require.False(c.t, seen[d.id()], "%s was acked before", d.id())
				seen[d.id()] = true
				c.accepted(d, "")
			default:
				return c.depth(queue) == 0
			}
		}
	}, "%s must become empty", queue)
	return seen
}

// TestCrashInCompaction: fila is killed, or its disk fails, in commits that compact a mostly
// dead store. Acked messages stay acked, and all others are there.
func TestCrashInCompaction(t *testing.T) {
	needStrace(t)
	t.Parallel()
	ripe, live := ripeStore(t)
	var compacting atomic.Int64
	t.Cleanup(func() {
		n := compacting.Load()
		t.Logf("compaction had run in %d of them", n)
		if n < 4 {
			t.Error("too few of them came in compaction")
		}
	})
	for _, f := range []fault{
		{"pwrite64", "signal=SIGKILL", 1},
		{"pwrite64", "signal=SIGKILL", 3},
		{"pwrite64", "signal=SIGKILL", 9},
		{"pwrite64", "signal=SIGKILL", 30},
		{"fdatasync", "signal=SIGKILL", 1},
		{"fdatasync", "signal=SIGKILL", 2},
		{"fdatasync", "signal=SIGKILL", 5},
		{"pwrite64", "error=ENOSPC", 4},
		{"fdatasync", "error=EIO", 3},
	} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			p := newFila(t, options{})
			require.NoError(t, os.Mkdir(p.Dir, 0o700))
			require.NoError(t, os.WriteFile(p.file(), ripe, 0o600))
			require.NoError(t, p.start(p.withFault(f)...))
			want, perhaps := maps.Clone(live), map[string]bool{}
			if p.waitReady() == nil {
				nc := p.client(t).nc
				ctx, cancel := context.WithCancel(t.Context())
				go func(exited chan struct{}) { <-exited; cancel() }(p.exited)
				for i := 0; !p.hasExited(); i++ {
					payload := fmt.Sprint("new ", i)
					perhaps[payload] = true
					reply, err := nc.RequestMsgWithContext(ctx, message("q", payload))
					if err == nil && errorOf(t, reply) == nil {
						want[payload] = true
					}
				}
			}
			p.failed(t, f, f.says())
			if p.wroteALot(t) {
				compacting.Add(1)
			}

			p.Start(t)
			c := p.client(t)
			k := c.consume("q", 64)
			eventually(t, func() bool {
				for {
					select {
					case d := <-k.ch:
						body := string(d.Data)
						require.True(t, want[body] || perhaps[body], "%.20q was finished before", body)
						delete(want, body)
						delete(perhaps, body)
						require.NoError(t, d.Respond(nil))
					default:
						return c.depth("q") == 0
					}
				}
			})
			require.Empty(t, want, "confirmed messages are lost")
			require.Zero(t, p.Stop(t))
		})
	}
}

// ripeStore creates a store with mostly acked messages that was not compacted. It returns its
// bytes and the payloads of the live messages.
func ripeStore(t *testing.T) (file []byte, live map[string]bool) {
	t.Helper()
	p := startFila(t, options{})
	c := p.client(t)
	c.createQueue("q", nil)
	const n = 3000
	msgs := make([]*nats.Msg, n)
	for i := range msgs {
		msgs[i] = message("q", fmt.Sprint(i, " ", strings.Repeat("x", 3000)))
	}
	c.enqueueAll(msgs)
	require.Zero(t, p.Stop(t))

	s, err := store.Open(p.file(), store.Options{CompactRatio: 1e9, CompactMinBytes: 1 << 60})
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 2))
	live = map[string]bool{}
	var refs []store.Ref
	_, err = s.Recover(store.Visitor{Message: func(m *store.Message, _ int, _ *store.State) error {
		refs = append(refs, m.Ref)
		return nil
	}})
	require.NoError(t, err)
	require.Len(t, refs, n)
	var b store.Batch
	require.NoError(t, s.Read(refs, func(i int, _, payload []byte) {
		if rng.IntN(10) < 7 {
			b.Finish = append(b.Finish, refs[i])
		} else {
			live[string(payload)] = true
		}
	}))
	done := make(chan error, 1)
	b.Done = func(err error) { done <- err }
	s.Submit(&b)
	require.NoError(t, <-done)
	require.NoError(t, s.Close())
	file, err = os.ReadFile(p.file())
	require.NoError(t, err)
	return file, live
}

// call is a system call on the store's file.
type call struct {
	name      string
	size, off int64 // of a pwrite64
}

var callPattern = regexp.MustCompile(`^\d+ +(pwrite64|fdatasync|fsync|ftruncate)\((?:.*, (\d+), (\d+)\)|.*\)) += `)

// calls returns the calls that strace saw, in order. strace splits a call into two lines if
// another thread comes between.
func (p *proc) calls(t testing.TB) []call {
	t.Helper()
	text, err := os.ReadFile(p.trace())
	require.NoError(t, err)
	var out []call
	begun := map[string]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		thread, _, _ := strings.Cut(line, " ")
		if head, ok := strings.CutSuffix(line, "<unfinished ...>"); ok {
			begun[thread] = strings.TrimSpace(head)
			continue
		}
		if _, tail, ok := strings.Cut(line, " resumed>"); ok {
			line = begun[thread] + tail
		}
		found := callPattern.FindStringSubmatch(line)
		if found == nil {
			continue // the end of a process
		}
		one := call{name: found[1]}
		if one.name == "pwrite64" {
			one.size, err = strconv.ParseInt(found[2], 10, 64)
			require.NoError(t, err)
			one.off, err = strconv.ParseInt(found[3], 10, 64)
			require.NoError(t, err)
		}
		out = append(out, one)
	}
	return out
}

// wroteALot reports whether a commit has written much more than the small messages that the
// client sends.
func (p *proc) wroteALot(t testing.TB) bool {
	return slices.ContainsFunc(p.calls(t), func(c call) bool { return c.size >= 64<<10 })
}

// TestOrderOfWrites checks the order of system calls under load. The state after a power
// failure follows from it (TestPowerFailure in store).
func TestOrderOfWrites(t *testing.T) {
	needStrace(t)
	t.Parallel()
	p := newFila(t, options{})
	p.Start(t)
	c := p.client(t)
	c.createQueue("q", nil)
	require.Zero(t, p.Stop(t))
	p.Start(t, p.strace(p.file(), "--seccomp-bpf")...)
	c = p.client(t)
	k := c.consume("q", 32)
	for i := range 20 {
		msgs := make([]*nats.Msg, 50)
		for j := range msgs {
			msgs[j] = message("q", strings.Repeat("x", 1+i*j*20))
		}
		c.enqueueAll(msgs)
		for _, d := range k.take(20) {
			require.NoError(t, d.Respond(nil))
		}
	}
	require.Zero(t, p.Stop(t))

	// Written and not synced yet.
	var data, meta, seal, grown bool
	var commits, growths int
	for i, c := range p.calls(t) {
		switch {
		case c.name == "ftruncate":
			require.False(t, data || meta || seal, "call %d: the file grows within the writes of a commit", i)
			grown = true
			growths++
		case c.name == "pwrite64" && c.off >= 2*4096:
			require.False(t, grown, "call %d: a data page before the new size is synced", i)
			require.False(t, meta || seal, "call %d: a data page of a commit before the last one is synced", i)
			data = true
		case c.name == "pwrite64" && c.size == 4096:
			require.False(t, grown || meta || seal, "call %d: a meta page before the last commit is synced", i)
			meta = true
			commits++
		case c.name == "pwrite64":
			require.False(t, seal, "call %d: a second seal before the first one is synced", i)
			seal = true
		default:
			data, meta, seal, grown = false, false, false, false
		}
	}
	require.False(t, data || meta || seal || grown, "the end is synced")
	require.Greater(t, commits, 20)
	require.Positive(t, growths)
}
