// Producer publishes messages to a queue of fila with nats.go alone, and waits
// for the confirmation of each.
//
//	go run ./examples/go/producer QUEUE [COUNT [WHAT]]
//
// NATS_URL is the address of NATS. It survives restarts of fila and NATS: whatever is
// not confirmed is published again with the same Nats-Msg-Id, so that it is
// stored once.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// todo tells the example consumers what to show with a message.
var todo = []string{"ack", "fail", "later", "busy", "slow", "hopeless"}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal("usage: producer QUEUE [COUNT [WHAT]]")
	}
	count := len(todo)
	if len(os.Args) > 2 {
		var err error
		if count, err = strconv.Atoi(os.Args[2]); err != nil {
			log.Fatal(err)
		}
	}
	if len(os.Args) > 3 {
		todo = os.Args[3:4]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1], count); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, queue string, count int) error {
	nc, err := nats.Connect(os.Getenv("NATS_URL"), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return err
	}
	defer nc.Close()

	// Several at a time: fila writes messages that arrive together in one commit.
	var publishers sync.WaitGroup
	work := make(chan int)
	failed := make(chan error, 16)
	for range cap(failed) {
		publishers.Go(func() {
			for i := range work {
				if err := publish(ctx, nc, queue, i); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	for i := range count {
		select {
		case work <- i:
		case <-ctx.Done():
		}
	}
	close(work)
	publishers.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// publish returns when the message is on disk, or can never be.
func publish(ctx context.Context, nc *nats.Conn, queue string, i int) error {
	msg := nats.NewMsg("fila.enqueue." + queue)
	msg.Data = fmt.Append(nil, "message ", i)
	msg.Header.Set("tenant", []string{"acme", "globex"}[i%2])
	msg.Header.Set("Nats-Msg-Id", fmt.Sprint("go-", i))
	msg.Header.Set("todo", todo[i%len(todo)])
	for {
		wait, err := try(ctx, nc, msg)
		if err != nil || wait == 0 {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// try publishes once. It returns how long to wait before the next try, 0 if
// there need be none.
func try(ctx context.Context, nc *nats.Conn, msg *nats.Msg) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	reply, err := nc.RequestMsgWithContext(ctx, msg)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		log.Printf("%s: nobody is there, again in 250 ms", msg.Data)
		return 250 * time.Millisecond, nil
	case errors.Is(err, context.DeadlineExceeded):
		log.Printf("%s: no reply, again at once", msg.Data)
		return time.Millisecond, nil
	case err != nil:
		return 0, err
	}
	if code := reply.Header.Get("Nats-Service-Error-Code"); code != "" {
		// 429: the queue is full. 503: fila is stopping. 500: perhaps stored.
		if code != "429" && code != "503" && code != "500" {
			return 0, fmt.Errorf("%s: refused: %s", msg.Data, reply.Data)
		}
		ms, _ := strconv.ParseInt(reply.Header.Get("Fila-Retry-After-Ms"), 10, 64)
		ms = max(ms, 100)
		fmt.Printf("refused %s with %s, again in %d ms\n", msg.Data, code, ms)
		return time.Duration(ms) * time.Millisecond, nil
	}
	var receipt struct {
		ID        string `json:"id"`
		Duplicate bool   `json:"duplicate"`
	}
	if err := json.Unmarshal(reply.Data, &receipt); err != nil {
		return 0, err
	}
	fmt.Printf("stored %s as %s\n", msg.Data, receipt.ID)
	return 0, nil
}
