package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/filaq/fila/bench/system"
)

// queueName is the queue of every peer.
const queueName = "bench"

// Errors of what peers do not do.
var (
	errAckConfirmed = fmt.Errorf("confirmed acks: %w", errors.ErrUnsupported)
	errNack         = fmt.Errorf("nacks: %w", errors.ErrUnsupported)
	errHeld         = fmt.Errorf("the content of the queue: %w", errors.ErrUnsupported)
)

// discarded is the part of a target whose server lasts for one measurement.
type discarded struct{}

func (discarded) TearDown(context.Context) error               { return nil }
func (discarded) Held(context.Context) (system.Content, error) { return system.Content{}, errHeld }

// ackedByReturn is the part of consumers whose client acks when the handler returns.
type ackedByReturn struct{}

func (ackedByReturn) Ack(string) error  { return nil }
func (ackedByReturn) Nack(string) error { return errNack }

// blocking is a producer over a client whose enqueue returns when the message is confirmed. Each
// message in flight has a goroutine.
type blocking struct {
	enqueue  func(data []byte) error
	answered func(slot int, refused error)
	close    func()
}

func (b *blocking) Publish(slot int, m *system.Message) error {
	data := bytes.Clone(m.Data)
	go func() { b.answered(slot, b.enqueue(data)) }()
	return nil
}

func (*blocking) Flush() error { return nil }
func (b *blocking) Close()     { b.close() }
