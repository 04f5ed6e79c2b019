// Consumer works on the messages of a queue of fila with nats.go alone.
//
//	go run ./examples/go/consumer QUEUE
//
// NATS_URL is the address of NATS. An interrupt stops it gracefully. It survives
// restarts of fila and NATS: it registers again, and repeats an ack until it is
// answered.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	name        = "go-1"
	maxInFlight = 16
	ttl         = 30 * time.Second
)

type consumer struct {
	nc         *nats.Conn
	queue      string
	registered chan struct{} // closed when lease is known
	lease      time.Duration // the visibility timeout
	tasks      sync.WaitGroup
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: consumer QUEUE")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, queue string) error {
	reconnected := make(chan struct{}, 1)
	nc, err := nats.Connect(os.Getenv("NATS_URL"), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.ReconnectHandler(func(*nats.Conn) {
			select {
			case reconnected <- struct{}{}:
			default:
			}
		}))
	if err != nil {
		return err
	}
	defer nc.Close()
	c := &consumer{nc: nc, queue: queue, registered: make(chan struct{})}

	// Subscribe first, then register: a delivery without a subscriber ends a registration.
	sub, err := nc.Subscribe("fila.deliver."+name+"."+queue, func(msg *nats.Msg) {
		c.tasks.Go(func() { c.handle(msg) }) // at most maxInFlight of them
	})
	if err != nil {
		return err
	}
	closed := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(closed) })
	if err := nc.Flush(); err != nil {
		return err
	}
	if err := c.register(ctx); err != nil {
		return err
	}
	fmt.Println("registered", name)

	// Register again in good time, and at once after a reconnect.
	next := ttl / 3
	for ctx.Err() == nil {
		select {
		case <-time.After(next):
		case <-reconnected:
		case <-ctx.Done():
			continue
		}
		next = ttl / 3
		if err := c.register(ctx); err != nil {
			log.Print("register: ", err)
			next = time.Second
		}
	}

	// Leave, so that no more deliveries come; let the received ones finish.
	if err := c.ask(context.Background(), map[string]any{"leave": true}, nil); err != nil {
		log.Print("leave: ", err)
	}
	if err := sub.Drain(); err != nil {
		return err
	}
	<-closed
	c.tasks.Wait()
	return nc.Flush()
}

func (c *consumer) register(ctx context.Context) error {
	var reply struct {
		VisibilityTimeoutMs int64 `json:"visibility_timeout_ms"`
	}
	request := map[string]any{"max_in_flight": maxInFlight, "ttl_ms": ttl.Milliseconds()}
	if err := c.ask(ctx, request, &reply); err != nil {
		return err
	}
	if c.lease == 0 {
		c.lease = time.Duration(reply.VisibilityTimeoutMs) * time.Millisecond
		close(c.registered)
	}
	return nil
}

// ask sends a request to fila.consumer and reads the reply, which may be an
// error.
func (c *consumer) ask(ctx context.Context, request, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	reply, err := c.nc.RequestWithContext(ctx, "fila.consumer."+name+"."+c.queue, body)
	if err != nil {
		return err
	}
	if reply.Header.Get("Nats-Service-Error-Code") != "" {
		return errors.New(string(reply.Data))
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(reply.Data, into)
}

// handle shows the ways in which a message can end.
func (c *consumer) handle(msg *nats.Msg) {
	text, attempt := msg.Data, msg.Header.Get("Fila-Attempt")
	todo := msg.Header.Get("todo")
	var err error
	switch {
	case todo == "hopeless":
		fmt.Printf("terminated %s, attempt %s\n", text, attempt)
		err = msg.Respond([]byte("+TERM nothing will help")) // to the dead letter queue
	case todo == "fail" && attempt == "1":
		// With an error, for on_failure and for people.
		fmt.Printf("nacked %s, attempt %s: with an error\n", text, attempt)
		err = msg.Respond([]byte(`-NAK {"error":"no luck today","code":"luck"}`))
	case todo == "later" && attempt == "1":
		fmt.Printf("nacked %s, attempt %s: with a delay\n", text, attempt)
		err = msg.NakWithDelay(300 * time.Millisecond)
	case todo == "busy" && attempt == "1":
		// The provider said Retry-After: tell fila, which keeps others away too.
		fmt.Printf("nacked %s, attempt %s: with Retry-After\n", text, attempt)
		err = msg.Respond([]byte(`-NAK {"error":"provider is busy","code":"429","delay":"300ms","retry_after_ms":300}`))
	case todo == "slow":
		err = c.slowly(msg)
		if err == nil {
			c.ack(msg)
		}
	default:
		c.ack(msg)
	}
	if err != nil {
		log.Printf("%s: %v", text, err)
	}
}

// slowly works longer than the visibility timeout and extends the lease.
func (c *consumer) slowly(msg *nats.Msg) error {
	<-c.registered // the delivery may be here before the reply
	for range 6 {
		time.Sleep(c.lease / 3)
		if err := msg.InProgress(); err != nil {
			return err
		}
	}
	return nil
}

// ack finishes a message for good: it repeats the ack until fila has answered.
// (msg.Ack is enough where a message may come again now and then. msg.AckSync
// does not look at what the reply says.)
func (c *consumer) ack(msg *nats.Msg) {
	for {
		reply, err := c.nc.Request(msg.Reply, nil, 2*time.Second)
		if err != nil { // no responders, no reply: fila or NATS is away
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if code := reply.Header.Get("Nats-Service-Error-Code"); code == "500" || code == "503" {
			time.Sleep(100 * time.Millisecond)
			continue
		} else if code != "" { // 409: the lease is lost, or an earlier try arrived
			fmt.Printf("refused ack of %s: %s\n", msg.Data, reply.Data)
			return
		}
		fmt.Printf("acked %s, attempt %s\n", msg.Data, msg.Header.Get("Fila-Attempt"))
		return
	}
}
