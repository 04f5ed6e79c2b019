package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/filaq/fila/bench/system"
)

// maxWorkers is the largest number of connections of a consumer. A connection of beanstalkd
// that waits for a job runs no other command, so each holds one job at a time.
const maxWorkers = 64

// startBeanstalkd starts beanstalkd with a binlog.
func startBeanstalkd(s *server, sync bool) (string, error) {
	addr, host, port, err := freeAddress()
	if err != nil {
		return "", err
	}
	every := "50" // ms, beanstalkd's default
	if sync {
		every = "0"
	}
	cmd, err := s.command([]string{"beanstalkd"}, "-l", host, "-p", port, "-b", s.dir, "-f", every)
	if err != nil {
		return "", err
	}
	return addr, s.start(cmd)
}

// beanstalkd is its default tube.
type beanstalkd struct {
	discarded
	addr string
}

func openBeanstalkd(addr string) (system.Target, error) { return &beanstalkd{addr: addr}, nil }

func (b *beanstalkd) SetUp(context.Context) error { return reachable(b.addr) }

func (*beanstalkd) Close() {}

// beanConn is a connection to beanstalkd.
type beanConn struct {
	nc net.Conn
	r  *bufio.Reader
	w  *bufio.Writer
}

func dialBeanstalkd(addr string) (*beanConn, error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	const buffer = 64 << 10
	return &beanConn{nc, bufio.NewReaderSize(nc, buffer), bufio.NewWriterSize(nc, buffer)}, nil
}

// reply reads a reply that begins with a word, and returns the rest of its line.
func (c *beanConn) reply(word string) (string, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return "", err
	}
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), word)
	if !ok {
		return "", fmt.Errorf("beanstalkd said %q, not %s", line, word)
	}
	return strings.TrimSpace(rest), nil
}

// beanProducer sends puts without waiting for replies, which come in the same order.
type beanProducer struct {
	*beanConn
	sent chan int // slots
	more chan struct{}
	mu   sync.Mutex // of w
}

func (b *beanstalkd) Producer(_ context.Context, slots int, answered func(slot int, refused error)) (system.Producer, error) {
	conn, err := dialBeanstalkd(b.addr)
	if err != nil {
		return nil, err
	}
	p := &beanProducer{beanConn: conn, sent: make(chan int, slots), more: make(chan struct{}, 1)}
	go func() {
		for slot := range p.sent {
			_, err := conn.reply("INSERTED")
			answered(slot, err)
			if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
				return
			}
		}
	}()
	go p.flushes()
	return p, nil
}

// flushes writes what has been buffered, so that many messages share a write.
func (p *beanProducer) flushes() {
	for range p.more {
		p.mu.Lock()
		_ = p.w.Flush() // the next put returns the error
		p.mu.Unlock()
	}
}

func (p *beanProducer) Publish(slot int, m *system.Message) error {
	p.sent <- slot
	p.mu.Lock()
	_, err := fmt.Fprintf(p.w, "put 0 0 60 %d\r\n%s\r\n", len(m.Data), m.Data)
	p.mu.Unlock()
	select {
	case p.more <- struct{}{}:
	default: // the buffer will be flushed
	}
	return err
}

func (*beanProducer) Flush() error { return nil }

func (p *beanProducer) Close() {
	close(p.more)
	close(p.sent)
	_ = p.nc.Close() // the measurement is over
}

// beanConsumers are consumers, each of which has a connection for each job that it holds.
type beanConsumers struct {
	ackedByReturn
	addr string
}

func (b *beanstalkd) Consumers(acked func(error)) (system.Consumers, error) {
	if acked != nil {
		return nil, errAckConfirmed
	}
	return &beanConsumers{addr: b.addr}, nil
}

func (c *beanConsumers) Consume(_ context.Context, _ string, credit int, handle system.Handler) (func(context.Context) error, error) {
	var conns []*beanConn
	var working sync.WaitGroup
	stop := func(context.Context) error {
		for _, conn := range conns {
			_ = conn.nc.Close() // ends the worker
		}
		working.Wait()
		return nil
	}
	for range min(credit, maxWorkers) {
		conn, err := dialBeanstalkd(c.addr)
		if err != nil {
			return nil, errors.Join(err, stop(context.Background()))
		}
		conns = append(conns, conn)
		working.Go(func() { _ = conn.work(handle) }) // a lost job makes the load fail
	}
	return stop, nil
}

func (*beanConsumers) Close() {}

// work reserves jobs and deletes each of them together with the next reserve, until the
// connection is closed.
func (c *beanConn) work(handle system.Handler) error {
	command := "reserve\r\n"
	for deleting := false; ; deleting = true {
		if _, err := c.nc.Write([]byte(command)); err != nil {
			return err
		}
		if deleting {
			if _, err := c.reply("DELETED"); err != nil {
				return err
			}
		}
		head, err := c.reply("RESERVED")
		if err != nil {
			return err
		}
		id, size, _ := strings.Cut(head, " ")
		n, err := strconv.Atoi(size)
		if err != nil {
			return err
		}
		data := make([]byte, n+len("\r\n"))
		if _, err := io.ReadFull(c.r, data); err != nil {
			return err
		}
		handle(data[:n], "")
		command = "delete " + id + "\r\nreserve\r\n"
	}
}
