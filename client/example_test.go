package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/client"
)

func ExampleClient_Publish() {
	nc, err := nats.Connect(nats.DefaultURL)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	fila, err := client.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	receipt, err := fila.Publish(context.Background(), "orders", []byte(`{"id":1}`),
		client.Header("tenant", "acme"), client.DedupeID("order-1"))
	var refused *client.Error
	switch {
	case errors.As(err, &refused):
		fmt.Println("refused with", refused.Code, "try again in", refused.RetryAfter)
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Println("stored as", receipt.ID)
	}
}

func ExampleClient_Consume() {
	nc, err := nats.Connect(nats.DefaultURL, nats.MaxReconnects(-1))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	fila, err := client.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	work := func(_ context.Context, m *client.Message) error {
		fmt.Printf("%s, attempt %d: %s\n", m.Key, m.Attempt, m.Data)
		return nil // acks; an error nacks
	}
	consumer, err := fila.Consume(context.Background(), "orders", work,
		client.Concurrency(4), client.OnError(func(err error) { log.Print(err) }))
	if err != nil {
		log.Fatal(err)
	}
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	<-interrupted.Done()

	grace, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := consumer.Stop(grace); err != nil {
		log.Print(err)
	}
}
