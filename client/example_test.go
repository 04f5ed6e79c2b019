package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/client"
)

// connect is the first step of every program. Unlimited reconnects let it survive restarts.
func connect() (*client.Client, func()) {
	nc, err := nats.Connect(os.Getenv("NATS_URL"), nats.MaxReconnects(-1))
	if err != nil {
		log.Fatal(err)
	}
	fila, err := client.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	return fila, nc.Close
}

func ExampleClient_Publish() {
	fila, closeConn := connect()
	defer closeConn()
	ctx := context.Background()

	for range 2 {
		receipt, err := fila.Publish(ctx, "orders", []byte(`{"id":1}`),
			client.Header("tenant", "acme"), client.DedupeID("order-1"), client.RetryFor(time.Minute))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("stored in", receipt.Queue, "again:", receipt.Duplicate)
	}
	_, err := fila.Publish(ctx, "orders", nil, client.Delay(-time.Second))
	var refused *client.Error
	if errors.As(err, &refused) {
		fmt.Println("refused:", refused.Code, refused.ErrCode, "retry after", refused.RetryAfter)
	}
	_, err = fila.Publish(ctx, "no-such-queue", nil)
	fmt.Println("nobody there:", errors.Is(err, client.ErrNoFila))
	// Output:
	// stored in orders again: false
	// stored in orders again: true
	// refused: 400 23400 retry after 0s
	// nobody there: true
}

// Thousands of messages can be on their way at once. Each has a future; often
// it is enough to wait for all and to count the failures.
func ExampleClient_PublishAsync() {
	fila, closeConn := connect()
	defer closeConn()
	ctx := context.Background()

	var futures []*client.PublishFuture
	for i := range 1000 {
		future, err := fila.PublishAsync(ctx, "mails", fmt.Append(nil, "mail ", i),
			client.DedupeID(fmt.Sprint("mail-", i)), client.RetryFor(time.Minute))
		if err != nil {
			log.Fatal(err)
		}
		futures = append(futures, future)
	}
	<-fila.PublishAsyncComplete()
	stored := 0
	for _, future := range futures {
		if _, err := future.Result(); err != nil {
			log.Print(err)
			continue
		}
		stored++
	}
	fmt.Println("stored", stored)
	// Output: stored 1000
}

func ExampleClient_Consume() {
	fila, closeConn := connect()
	defer closeConn()
	ctx := context.Background()
	if _, err := fila.EnsureQueue(ctx, "reports", client.QueueSettings{}); err != nil {
		log.Fatal(err)
	}
	if _, err := fila.Publish(ctx, "reports", []byte("daily")); err != nil {
		log.Fatal(err)
	}

	done := make(chan struct{})
	work := func(_ context.Context, m *client.Message) error {
		fmt.Printf("attempt %d: %s\n", m.Attempt, m.Data)
		if m.Attempt == 1 {
			return errors.New("not today") // nacks; a panic does as well
		}
		close(done)
		return nil // acks
	}
	consumer, err := fila.Consume(ctx, "reports", work,
		client.Concurrency(4), client.OnError(func(err error) { log.Print(err) }))
	if err != nil {
		log.Fatal(err)
	}
	<-done // a service waits for its signal to end

	grace, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := consumer.Stop(grace); err != nil {
		log.Fatal(err)
	}
	// Output:
	// attempt 1: daily
	// attempt 2: daily
}

// Fetch is for programs that request messages instead of receiving them at any time.
func ExampleClient_Fetch() {
	fila, closeConn := connect()
	defer closeConn()
	ctx := context.Background()
	if _, err := fila.EnsureQueue(ctx, "tasks", client.QueueSettings{}); err != nil {
		log.Fatal(err)
	}
	for i := range 3 {
		if _, err := fila.Publish(ctx, "tasks", fmt.Append(nil, "task ", i)); err != nil {
			log.Fatal(err)
		}
	}

	messages, err := fila.Fetch(ctx, "tasks", 2, time.Second)
	if err != nil {
		log.Fatal(err)
	}
	for i, m := range messages {
		fmt.Println(string(m.Data))
		if i == 0 {
			err = m.AckSync(ctx) // when it returns nil, the message never comes again
		} else {
			err = m.Nack(client.NackOptions{Error: "no network", Delay: 10 * time.Second})
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// task 0
	// task 1
}
