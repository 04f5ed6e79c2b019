package e2e

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/e2e/build"
)

// childConsumer is a helper process: a consumer that takes messages, prints one
// line per delivery and never acks, until it is killed.
func childConsumer() {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	nc, err := nats.Connect(os.Getenv("URL"))
	fail(err)
	queue, name := os.Getenv("QUEUE"), os.Getenv("NAME")
	_, err = nc.Subscribe("fila.deliver."+name+"."+queue, func(msg *nats.Msg) {
		fmt.Println(msg.Header.Get("Fila-Id"))
	})
	fail(err)
	fail(nc.Flush())
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	body := fmt.Sprintf(`{"consumer":%q,"max_in_flight":%s}`, name, os.Getenv("CREDIT"))
	reply, err := nc.RequestWithContext(ctx, "fila.consume."+queue, []byte(body))
	fail(err)
	if reply.Header.Get("Nats-Service-Error") != "" {
		fail(fmt.Errorf("refused: %s", reply.Data))
	}
	<-make(chan struct{}) // the parent kills it
}

// childProcess is a consumer in its own process.
type childProcess struct {
	cmd   *exec.Cmd
	lines chan string
	done  chan struct{}
}

// startChild starts a consumer process with a max_in_flight.
func startChild(t testing.TB, url, queue, name, credit string) *childProcess {
	t.Helper()
	k := &childProcess{cmd: exec.Command(os.Args[0]), lines: make(chan string, 1024), done: make(chan struct{})}
	k.cmd.Env = append(cleanEnv(), roleEnv+"=consumer", "URL="+url, "QUEUE="+queue, "NAME="+name, "CREDIT="+credit)
	k.cmd.Stderr = os.Stderr
	out, err := k.cmd.StdoutPipe()
	require.NoError(t, err)
	wait, err := build.Start(k.cmd)
	require.NoError(t, err)
	go func() {
		defer close(k.done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			k.lines <- lines.Text()
		}
		wait()
	}()
	t.Cleanup(k.kill)
	return k
}

// kill ends the process with SIGKILL and waits for it. It is safe to repeat.
func (k *childProcess) kill() {
	_ = k.cmd.Process.Kill()
	<-k.done
}

// next waits for the id of the next delivery to the child.
func (k *childProcess) next(t testing.TB) string {
	t.Helper()
	select {
	case id := <-k.lines:
		return id
	case <-time.After(patience):
		require.Fail(t, "the consumer process received nothing")
		return ""
	}
}
