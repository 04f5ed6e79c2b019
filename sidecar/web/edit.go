package web

import (
	"encoding/base64"
	"errors"
	"net/url"
	"strings"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// editData is the form of a message.
type editData struct {
	api.MessageInfo
	Headers string // a line each: "name: value"
	Several bool   // a header has several values
	Payload string
	Binary  bool // Payload is base64
	Cut     bool // the payload is incomplete, so it stays as it is
	Turns   bool // a field has characters that turn the direction of text
}

// Title is the title of the page.
func (d *editData) Title() string { return "Edit message " + shortID(d.ID) }

// Crumbs are the pages above it.
func (d *editData) Crumbs() []crumb {
	return append(messageCrumbs(d.Queue), crumb{shortID(d.ID), href("", "/messages/"+url.PathEscape(d.ID), "queue", d.Queue)})
}

func edit(a *ask) (any, error) {
	d := &editData{}
	if err := a.editable(a.query("queue"), a.r.PathValue("id"), d); err != nil {
		return nil, err
	}
	return d, nil
}

// editable returns a message with all of its headers.
func (a *ask) editable(queue, id string, d *editData) error {
	if err := a.verb(api.VerbMessageShow, "", showRequest(queue, id, api.MaxPeekPayload), &d.MessageInfo); err != nil {
		return err
	}
	if d.HeadersCut || d.Unreadable != "" {
		return errors.New("this message cannot be edited here, since it has too many headers or cannot be read; use fila job create QUEUE edit")
	}
	var b strings.Builder
	for _, h := range headersOf(&d.PeekedMessage) {
		switch {
		case wire.Reserved(h.Name):
		case len(d.PeekedMessage.Headers[h.Name]) > 1:
			d.Several = true
		default:
			b.WriteString(h.Name + ": " + h.Value + "\n")
		}
	}
	d.Headers = b.String()
	d.Payload, d.Binary = payloadText(&d.PeekedMessage)
	d.Cut = d.PayloadCut
	d.Turns = turns([]byte(d.Headers)) || !d.Cut && turns([]byte(d.Payload))
	return nil
}

// editMessage creates a job for the differences between form and message.
func editMessage(a *ask, form url.Values) (string, error) {
	var d editData
	queue, id := form.Get("queue"), form.Get("id")
	if err := a.editable(queue, id, &d); err != nil {
		return "", err
	}
	req := api.JobCreateRequest{Queue: d.Queue, Op: api.JobEdit, Filter: &api.Filter{IDs: []string{d.ID}}, Reason: form.Get("reason")}
	was, err := headerLines(d.Headers)
	if err != nil {
		return "", err
	}
	is, err := headerLines(form.Get("headers"))
	if err != nil {
		return "", err
	}
	for name, value := range is {
		if before, ok := was[name]; !ok || before != value {
			if req.SetHeaders == nil {
				req.SetHeaders = make(map[string]string)
			}
			req.SetHeaders[name] = value
		}
	}
	for name := range was {
		if _, ok := is[name]; !ok {
			req.RemoveHeaders = append(req.RemoveHeaders, name)
		}
	}
	if _, given := form["payload"]; given && !d.Cut {
		if req.Payload, err = changed(&d, form.Get("payload")); err != nil {
			return "", err
		}
	}
	if len(req.SetHeaders)+len(req.RemoveHeaders) == 0 && req.Payload == nil {
		return "", errors.New("nothing was changed")
	}
	return a.createJob(req, form)
}

// changed returns the payload of a form in base64; nil if the message already has it.
// Browsers send line ends as CR LF.
func changed(d *editData, text string) (*string, error) {
	if d.Binary {
		data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
		if err != nil {
			return nil, wrongField("payload", "the payload is not base64")
		}
		text = base64.StdEncoding.EncodeToString(data)
		if text == d.Payload {
			return nil, nil
		}
		return &text, nil
	}
	lines := strings.ReplaceAll(text, "\r\n", "\n")
	if lines == strings.ReplaceAll(d.Payload, "\r\n", "\n") {
		return nil, nil
	}
	if strings.Contains(d.Payload, "\r\n") {
		lines = strings.ReplaceAll(lines, "\n", "\r\n")
	}
	text = base64.StdEncoding.EncodeToString([]byte(lines))
	return &text, nil
}

// headerLines parses headers, one per line.
func headerLines(text string) (map[string]string, error) {
	headers := make(map[string]string)
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimPrefix(value, " ")
		_, twice := headers[name]
		switch {
		case !ok || name == "":
			return nil, wrongField("headers", "%q is not a header: write one header a line, as name: value", line)
		case twice:
			return nil, wrongField("headers", "the header %s occurs twice: write each header once", name)
		}
		headers[name] = value
	}
	return headers, nil
}
