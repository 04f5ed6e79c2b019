package docs

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"
)

const (
	// tokenFile has the token of the last delivery that `nats sub` printed, for pages that
	// say <token>.
	tokenFile = "token"
	// subscribedFile exists once `nats sub` has subscribed.
	subscribedFile = "subscribed"
)

// natsMain stands in for the nats CLI, which CI does not have: `nats req`, `nats
// pub` and `nats sub` with the flags that the pages use. It prints payloads only,
// as the real one does with --raw, and fails on an error reply.
func natsMain(args []string) int {
	flags := pflag.NewFlagSet("nats", pflag.ContinueOnError)
	headers := flags.StringArrayP("header", "H", nil, "name:value")
	replies := flags.Int("replies", 1, "number of replies to wait for")
	inboxes := flags.String("inbox-prefix", "_INBOX", "of reply subjects")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	words := append(flags.Args(), "", "", "")
	nc, err := nats.Connect(os.Getenv("NATS_URL"), nats.CustomInboxPrefix(*inboxes))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer nc.Close()
	msg := nats.NewMsg(words[1])
	msg.Data = []byte(words[2])
	for _, h := range *headers {
		name, value, _ := strings.Cut(h, ":")
		msg.Header.Add(name, value)
	}
	switch words[0] {
	case "req":
		err = request(nc, msg, *replies)
	case "pub":
		if err = nc.PublishMsg(msg); err == nil {
			err = nc.Flush()
		}
	case "sub":
		err = subscribe(nc, msg.Subject)
	default:
		err = fmt.Errorf("no stand-in for nats %s", words[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "nats:", err)
		return 1
	}
	return 0
}

// request prints up to replies replies. It fails if the next one does not come in time.
func request(nc *nats.Conn, msg *nats.Msg, replies int) error {
	msg.Reply = nc.NewRespInbox()
	sub, err := nc.SubscribeSync(msg.Reply)
	if err != nil {
		return err
	}
	if err := nc.PublishMsg(msg); err != nil {
		return err
	}
	for n := range replies {
		wait, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		reply, err := sub.NextMsgWithContext(wait)
		cancel()
		if err != nil {
			return err
		}
		status := reply.Header.Get("Status")
		switch {
		case reply.Header.Get("Nats-Service-Error-Code") != "":
			return fmt.Errorf("%s", reply.Data)
		case status != "" && n > 0, status == "404", status == "408":
			return nil // no more messages
		case status != "":
			return fmt.Errorf("status %s", status)
		}
		fmt.Printf("%s\n", reply.Data)
	}
	return nil
}

func subscribe(nc *nats.Conn, subject string) error {
	sub, err := nc.SubscribeSync(subject)
	if err != nil {
		return err
	}
	if err := nc.Flush(); err != nil {
		return err
	}
	if err := os.WriteFile(subscribedFile, nil, 0o600); err != nil {
		return err
	}
	for {
		msg, err := sub.NextMsgWithContext(context.Background())
		if err != nil {
			return err
		}
		if tokens := strings.Split(msg.Reply, "."); len(tokens) > 3 {
			if err := os.WriteFile(tokenFile, []byte(tokens[3]), 0o600); err != nil {
				return err
			}
		}
		if _, err := io.WriteString(os.Stdout, string(msg.Data)+"\n"); err != nil {
			return err
		}
	}
}
