package docs

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/client"
	"github.com/filaq/fila/client/filatest"
	"github.com/filaq/fila/wire/api"
)

const clientsPage = "docs/clients.md"

// goBlocks returns the service of docs/clients.md and its test.
func goBlocks(t *testing.T) (service, test string) {
	t.Helper()
	all := slices.DeleteFunc(blocks(clientsPage, readText(t, clientsPage)), func(b block) bool { return b.lang != "go" })
	require.Len(t, all, 2)
	return all[0].text, all[1].text
}

// TestServiceInGo runs the service of docs/clients.md as printed: it is fair, keeps the rate of each
// tenant, retries, dead-letters with a code, starts again with other settings, and stops on SIGTERM.
func TestServiceInGo(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("there is no SIGTERM")
	}
	service, _ := goBlocks(t)
	_, code, _ := strings.Cut(service, ")\n\n") // the imports
	require.LessOrEqual(t, len(strings.Split(strings.ReplaceAll(strings.TrimSpace(code), "\n\n", "\n"), "\n")), 32)
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(service), 0o600))
	binary := strings.TrimSuffix(file, ".go")
	output, err := exec.Command("go", "build", "-o", binary, file).CombinedOutput()
	require.NoError(t, err, "%s", output)

	server := filatest.Start(t, "")
	fila := server.Client(client.WithTimeout(time.Minute))
	ctx := t.Context()
	// The queue is there with other settings, as after a deploy of an older version of the service.
	_, err = fila.QueueCreate(ctx, "mails", client.QueueSettings{MaxDeliveries: new(int64(1)), MaxDepth: 1000})
	require.NoError(t, err)

	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), "NATS_URL="+server.URL())
	log, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewScanner(log)
	sent := func(n int) (all []string) {
		for len(all) < n && lines.Scan() {
			_, text, _ := strings.Cut(lines.Text(), " sent to ") // after the time
			all = append(all, text)
		}
		return all
	}
	publish := func(to, tenant string) {
		_, err := fila.PublishJSON(ctx, "mails", map[string]string{"to": to}, client.Header("tenant", tenant))
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		info, err := fila.QueueInspect(ctx, "mails", 0)
		return err == nil && info.Consumers == 1
	}, time.Minute, 10*time.Millisecond)
	publish("slow@example.com", "initech")
	require.Equal(t, []string{"slow@example.com for initech"}, sent(1), "the service has its settings, and retries")
	for i := range 16 {
		publish(fmt.Sprintf("%d@example.com", i), "acme")
	}
	publish("nowhere", "initech")
	publish("bob@example.com", "globex")
	all := sent(17)
	require.Len(t, all, 17)
	// Mails of acme take their time at 5/s; the one of globex, which came last, does not wait for them.
	require.Less(t, slices.Index(all, "bob@example.com for globex"), 16)

	info, err := fila.QueueInspect(ctx, "mails", 0)
	require.NoError(t, err)
	require.Equal(t, int64(1000), info.Settings.MaxDepth, "the service does not set it")
	require.Equal(t, int64(5), *info.Settings.MaxDeliveries)
	limits, err := fila.ThrottleShow(ctx, "tenant:acme")
	require.NoError(t, err)
	require.Equal(t, "5", string(*limits.Rate))
	dead, err := fila.Peek(ctx, "mails.dlq", api.PeekRequest{Limit: 10})
	require.NoError(t, err)
	require.Len(t, dead.Messages, 1)
	require.Equal(t, "term no address address", dead.Messages[0].Dead.Reason+" "+dead.Messages[0].Dead.Error+" "+dead.Messages[0].Dead.ErrorCode)

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Empty(t, sent(1))
	require.NoError(t, cmd.Wait())
	info, err = fila.QueueInspect(context.WithoutCancel(ctx), "mails", 0)
	require.NoError(t, err)
	require.Zero(t, info.Consumers+int(info.InFlight))
}

// TestTestInGo runs the test of docs/clients.md as printed.
func TestTestInGo(t *testing.T) {
	t.Parallel()
	service, test := goBlocks(t)
	// A directory that the go command passes over with ./..., within the module.
	dir, err := os.MkdirTemp("docs", "_clients")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(service), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main_test.go"), []byte(test), 0o600))
	output, err := exec.Command("go", "test", "./"+dir).CombinedOutput()
	require.NoError(t, err, "%s", output)
}
