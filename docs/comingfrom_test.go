package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/e2e/natstest"
)

// workersOfThePage is a program with what the workers in Go of docs/coming-from.md leave to the
// reader. Each of them must send one mail.
const workersOfThePage = `package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/filaq/fila/client"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

type Mail struct{ To string }

var (
	data = []byte(` + "`" + `{"to":"ann@example.com"}` + "`" + `)
	sent = make(chan any, 1)
)

func sendMail(_ context.Context, mail any) error {
	sent <- mail
	return nil
}

func withFila(ctx context.Context, fila *client.Client) error {
	FILA
	if err != nil {
		return err
	}
	fmt.Println("fila sent", <-sent)
	return worker.Stop(ctx)
}

func withJetStream(ctx context.Context, js jetstream.JetStream) error {
	JETSTREAM
	if err != nil {
		return err
	}
	fmt.Printf("JetStream sent %s\n", <-sent)
	worker.Stop()
	<-worker.Closed()
	return nil
}

func run(ctx context.Context) error {
	forFila, err := nats.Connect(os.Getenv("NATS_URL"))
	if err != nil {
		return err
	}
	defer forFila.Close()
	forJetStream, err := nats.Connect(os.Args[1])
	if err != nil {
		return err
	}
	defer forJetStream.Close()
	fila, err := client.New(forFila)
	if err != nil {
		return err
	}
	js, err := jetstream.New(forJetStream)
	if err != nil {
		return err
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "MAILS", Subjects: []string{"mails.>"}, Retention: jetstream.WorkQueuePolicy}); err != nil {
		return err
	}
	return errors.Join(withFila(ctx, fila), withJetStream(ctx, js))
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
`

// The workers in Go of docs/coming-from.md, with fila and with JetStream, run as printed. The
// check scripts of sdk/python and sdk/typescript run the two other workers with fila.
func TestComingFromRuns(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the commands are for a POSIX shell")
	}
	needBinaries(t)
	all := blocks(comingFromPage, readText(t, comingFromPage))
	find := func(lang, text string) string {
		i := slices.IndexFunc(all, func(b block) bool { return b.lang == lang && strings.Contains(b.text, text) })
		require.GreaterOrEqual(t, i, 0, text)
		return all[i].text
	}
	program := strings.NewReplacer("FILA", find("go", "fila.Consume"), "JETSTREAM", find("go", "js.Publish")).Replace(workersOfThePage)
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(program), 0o600))
	workers := strings.TrimSuffix(file, ".go")
	output, err := exec.Command("go", "build", "-o", workers, file).CombinedOutput()
	require.NoError(t, err, "%s", output)

	nats := natstest.Start(t, func(o *server.Options) { o.JetStream = true })
	s := newShell(t)
	out, code := s.run("fila_serve\n" + find("sh", "fila queue create"))
	require.Zero(t, code, out)
	out, code = s.run(workers + " " + nats.URL)
	require.Zero(t, code, out)
	require.Contains(t, out, "fila sent {ann@example.com}")
	require.Contains(t, out, `JetStream sent {"to":"ann@example.com"}`)
}
