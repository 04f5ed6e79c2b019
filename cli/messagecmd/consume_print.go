package messagecmd

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
)

// printedMessage is a message as `fila consume --json` prints it. A payload
// that is not UTF-8 is in payload_base64.
type printedMessage struct {
	ID            string              `json:"id"`
	Queue         string              `json:"queue"`
	Key           string              `json:"key"`
	Attempt       int                 `json:"attempt"`
	EnqueuedAt    string              `json:"enqueued_at"`
	Headers       map[string][]string `json:"headers"`
	Payload       *string             `json:"payload,omitempty"`
	PayloadBase64 []byte              `json:"payload_base64,omitempty"`
}

func (c *consumption) print(m *client.Message) error {
	if !c.env.JSON {
		text := append([]byte(c.head(m)), m.Data...)
		_, err := c.out.Write(append(text, '\n'))
		return err
	}
	line := printedMessage{
		ID: m.ID, Queue: m.Queue, Key: m.Key, Attempt: m.Attempt,
		EnqueuedAt: m.EnqueuedAt.Format(time.RFC3339Nano), Headers: m.Header,
	}
	if utf8.Valid(m.Data) {
		text := string(m.Data)
		line.Payload = &text
	} else {
		line.PayloadBase64 = m.Data
	}
	return terminal.PrintJSONLine(c.out, line)
}

// head is what -v prints before the payload: what fila says of the message, the
// producer's headers, and those of a dead letter.
func (c *consumption) head(m *client.Message) string {
	if !c.flags.verbose {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  key %s, attempt %d, enqueued %s\n",
		c.paint.Bold(terminal.Clean(m.ID)), terminal.Clean(m.Key), m.Attempt, c.env.When(m.EnqueuedAt.Format(time.RFC3339Nano)))
	writeHeaders(&b, c.paint, m.Header, saidAlready...)
	b.WriteString("\n")
	return b.String()
}

// saidAlready are the headers that a head says in its first line, or that say
// nothing to who reads it.
var saidAlready = []string{"Fila-Id", "Fila-Queue", "Fila-Key", "Fila-Attempt", "Fila-Enqueued-At", "Fila-Deadline"}
