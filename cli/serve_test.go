package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/sidecar/config"
)

// fakeServer records how it was started and stops when fila serve says so.
type fakeServer struct {
	cfg     config.Config
	version string
	err     error
	running chan struct{}
	killed  chan struct{}
	waits   bool // for the kill, not for the context
	reloads []error
	reload  chan struct{}
}

func (s *fakeServer) Run(ctx context.Context) error {
	close(s.running)
	if s.waits {
		<-ctx.Done()
		sendSelf(syscall.SIGTERM)
		<-s.killed
		return errors.New("killed")
	}
	<-ctx.Done()
	return s.err
}

func (s *fakeServer) Kill() { close(s.killed) }

func (s *fakeServer) Check() error { return s.err }

func (s *fakeServer) Reload() error {
	err := s.reloads[0]
	s.reloads = s.reloads[1:]
	s.reload <- struct{}{}
	return err
}

// serve runs fila serve with this server, and calls act while it runs.
func (s *fakeServer) serve(t *testing.T, ctx context.Context, act func(), args ...string) clitest.Result {
	t.Helper()
	s.running, s.killed = make(chan struct{}), make(chan struct{})
	go func() {
		<-s.running
		act()
	}()
	return serve(t, ctx, func(cfg config.Config, _ *slog.Logger, version string) (runner, error) {
		s.cfg, s.version = cfg, version
		return s, nil
	}, args...)
}

func sendSelf(signal syscall.Signal) {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Signal(signal)
	}
}

func serveFlags(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	cmd, rest, err := root().Find(append([]string{"serve"}, args...))
	require.NoError(t, err)
	require.NoError(t, cmd.ParseFlags(rest))
	return cmd.Flags()
}

func TestEveryServeFlagSetsItsKey(t *testing.T) {
	values := map[string]string{"drain-timeout": "1234ms", "port": "4333", "max-payload": "20000", "pprof": "true"}
	for flag, key := range serveKeys {
		value, ok := values[flag]
		if !ok {
			value = "x"
		}
		given := serveSettings(serveFlags(t, "--"+flag, value), false)
		require.Len(t, given, 1, flag)
		require.Equal(t, "--"+flag, given[0].Name)
		loaded, err := config.Load(config.Sources{Flags: given})
		if err != nil { // "x" is no log level and so on: the message names the key or its table
			require.NotContains(t, err.Error(), "there is no key", flag)
			require.Contains(t, err.Error(), key[:min(len(key), 8)], flag)
			continue
		}
		require.NotEqual(t, config.Default(), loaded.Config, flag)
	}
	require.Empty(t, serveSettings(serveFlags(t), false), "a flag that was not given changes nothing")
}

// --json also selects the log format, unless --log-format is given.
func TestServeLogFormat(t *testing.T) {
	for want, args := range map[string][]string{"text": {"--log-format", "text"}, "json": nil} {
		loaded, err := config.Load(config.Sources{
			Environ: []string{"FILA_LOG__FORMAT=text"}, Flags: serveSettings(serveFlags(t, args...), true),
		})
		require.NoError(t, err)
		require.Equal(t, want, loaded.Log.Format)
	}
}

// inEmptyDir keeps the package's ./config.toml out of the test.
func inEmptyDir(t *testing.T) {
	t.Helper()
	clitest.Isolate(t)
	t.Chdir(t.TempDir())
}

func TestServe(t *testing.T) {
	inEmptyDir(t)
	t.Setenv("FILA_LOG__LEVEL", "warn")
	t.Setenv("FILA_NOSUCH", "1")
	s := &fakeServer{}
	ctx, cancel := context.WithCancel(t.Context())
	r := clitest.OK(t, s.serve(t, ctx, cancel, "--port", "-1", "--host", "0.0.0.0", "--http", "", "--data-dir", "d", "--subject-prefix", "p", "--json"))
	want := config.Default()
	want.NATS.Embedded.Port, want.NATS.Embedded.Host, want.HTTP.Addr, want.DataDir = -1, "0.0.0.0", "", "d"
	want.NATS.SubjectPrefix, want.Log = "p", config.LogConfig{Level: "warn", Format: "json"}
	require.Equal(t, want, s.cfg)
	require.NotEmpty(t, s.version)
	require.Contains(t, r.Err, `"msg":"environment variable FILA_NOSUCH is not a setting of fila; it is ignored"`)
	require.Empty(t, r.Out)
}

func TestServeSignals(t *testing.T) {
	inEmptyDir(t)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		clitest.OK(t, new(fakeServer).serve(t, t.Context(), func() { sendSelf(signal) }))
	}
	s := &fakeServer{waits: true}
	clitest.Complains(t, s.serve(t, t.Context(), func() { sendSelf(syscall.SIGINT) }), command.ExitFailed, "fila: killed\n")
}

// Each SIGHUP reloads, and the process continues.
func TestServeReloads(t *testing.T) {
	inEmptyDir(t)
	require.NoError(t, os.WriteFile("config.toml", []byte("data_dir = \"d\""), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	s := &fakeServer{reloads: []error{errors.New("unknown key x in config.toml"), nil}, reload: make(chan struct{})}
	r := clitest.OK(t, s.serve(t, ctx, func() {
		for range 2 {
			sendSelf(syscall.SIGHUP)
			<-s.reload
		}
		cancel()
	}))
	require.Empty(t, s.reloads)
	require.Contains(t, r.Err, `msg="reload failed" error="unknown key x in config.toml"`)

	again, err := s.cfg.Reload()
	require.NoError(t, err)
	require.Equal(t, "d", again.DataDir)
}

func TestServeMistakes(t *testing.T) {
	inEmptyDir(t)
	require.NoError(t, os.WriteFile("config.toml", []byte("nats_url = 1"), 0o600))
	for args, want := range map[string]string{
		"serve":                            "fila: unknown key nats_url in config.toml\n",
		"serve --config nosuch.toml":       "fila: --config nosuch.toml: no such file or directory\n",
		"serve --config=":                  "fila: --config is empty: name a file\n",
		"serve --timeout 5s":               "fila: --timeout is for commands that talk to a running fila, not for serve\n",
		"serve --server a --nats-url b":    "fila: --server and --nats-url say the same: one of them is allowed\n",
		"serve --nosuch":                   "fila: unknown flag: --nosuch (see `fila serve --help`)\n",
		"serve --port abc":                 `fila: --port "abc": allowed is a whole number` + " (see `fila serve --help`)\n",
		"serve --drain-timeout soon extra": `fila: --drain-timeout "soon": allowed is a duration`,
	} {
		r := program.Run(t, "", strings.Fields(args)...)
		require.Equal(t, command.ExitUsage, r.Code, args)
		require.True(t, strings.HasPrefix(r.Err, want), "%s: %s", args, r.Err)
	}
	require.NoError(t, os.Remove("config.toml"))
	r := serve(t, t.Context(), func(config.Config, *slog.Logger, string) (runner, error) {
		return nil, errors.New("queue q, on_enqueue:\nunexpected symbol")
	})
	require.Equal(t, clitest.Ended(command.ExitUsage, "", "fila: queue q, on_enqueue:; unexpected symbol\n"), r)
}

// TestServeCheck reads files as a start would, and creates nothing.
func TestServeCheck(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write := func(name, text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	check := func(args ...string) clitest.Result {
		return serve(t, t.Context(), newSidecar, append([]string{"--check"}, args...)...)
	}
	require.Equal(t, clitest.Ended(command.ExitOK, "the configuration without a file is valid: 0 queues, 0 throttles, 0 circuits\n", ""), check())
	write("fair.lua", "function on_enqueue(msg) return {} end")
	write("token", "operator-token-0123456789")
	const good = "[[queue]]\nname = 'orders'\non_enqueue_file = 'fair.lua'\n[[throttle]]\nkey = 'tenant:*'\nrate = 5\n[http]\noperator_token = 'token'\n"
	write("config.toml", good)
	require.Equal(t, clitest.Ended(command.ExitOK, "config.toml is valid: 1 queue, 1 throttle, 0 circuits\n", ""), check())
	require.JSONEq(t, `{"valid":true,"file":"config.toml","warnings":[]}`, check("--json").Out)

	write("bad.lua", "function on_enqueue(msg) return { end")
	write("short", "short")
	for text, want := range map[string]string{
		strings.Replace(good, "fair.lua", "bad.lua", 1):                "orders/on_enqueue:1:37",
		strings.Replace(good, "fair.lua", "none.lua", 1):               "none.lua",
		strings.Replace(good, "rate = 5", "rate = -5", 1):              "rate",
		strings.Replace(good, "'token'", "'short'", 1):                 "http.operator_token: short: allowed is one line of",
		good + "[http.tls]\ncert = 'none.pem'\nkey = 'none.key'\n":     "none.pem",
		good + "[nats.embedded]\nusers_file = 'none.conf'\n":           "none.conf",
		good + "[nats]\nurl = 'nats://x:4222'\ncreds = 'none.creds'\n": "none.creds",
		"[nats]\nurl = 'nats://x:4222'\n[nats.tls]\nca = 'none.pem'\n": "none.pem",
		"nosuch = 1\n" + good: "nosuch",
	} {
		write("config.toml", text)
		r := check()
		require.Equal(t, command.ExitUsage, r.Code, "%s: %s%s", want, r.Out, r.Err)
		require.Contains(t, r.Err, want)
	}
	require.NoDirExists(t, "data")
}

func TestVersion(t *testing.T) {
	r := clitest.OK(t, program.Run(t, "", "version"))
	require.Regexp(t, `^fila \S+.* go\S+ \S+/\S+\n$`, r.Out)
	require.Equal(t, r, program.Run(t, "", "--version"))
	require.Contains(t, program.Run(t, "", "version", "--json").Out, `"go": "go`)
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		r := clitest.OK(t, program.Run(t, "", "completion", shell))
		require.Contains(t, r.Out, "fila")
	}
	r := program.Run(t, "", "__complete", "queue", "")
	require.Contains(t, r.Out, "inspect\t")
}
