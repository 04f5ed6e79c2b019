package web

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/filaq/fila/wire/api"
)

// schedulesData is a page of schedules.
type schedulesData struct {
	Queue string
	api.ScheduleList
	Following string // address of the next page
}

func schedules(a *ask) (any, error) {
	if queue := a.query("queue"); queue != "" {
		return nil, &elsewhere{queuePath(queue, "/schedules")}
	}
	d := &schedulesData{Queue: a.r.PathValue("queue")}
	if err := a.verb(api.VerbScheduleList, "", api.ScheduleListRequest{Queue: d.Queue, After: a.query("after"), Limit: perPage}, &d.ScheduleList); err != nil {
		return nil, err
	}
	if d.Next != "" {
		d.Following = href("", a.path(), "after", d.Next)
	}
	return d, nil
}

// addSchedule adds or replaces a schedule.
func addSchedule(a *ask, form url.Values) (string, error) {
	req := api.ScheduleAddRequest{
		Name: strings.TrimSpace(form.Get("name")), Schedule: strings.TrimSpace(form.Get("schedule")), TimeZone: strings.TrimSpace(form.Get("zone")),
		Missed: form.Get("missed"), Payload: []byte(strings.ReplaceAll(form.Get("payload"), "\r\n", "\n")),
	}
	headers, err := headerLines(form.Get("headers"))
	if err != nil {
		return "", err
	}
	for name, value := range headers {
		if req.Headers == nil {
			req.Headers = make(map[string][]string)
		}
		req.Headers[name] = []string{value}
	}
	var reply api.ScheduleInfo
	if err := a.verb(api.VerbScheduleAdd, strings.TrimSpace(form.Get("queue")), req, &reply); err != nil {
		return "", err
	}
	note := "The schedule %s of %s was added."
	switch {
	case reply.Unchanged:
		note = "The schedule %s of %s exists already, with the same settings."
	case reply.Replaced:
		note = "The schedule %s of %s was replaced."
	}
	return fmt.Sprintf(note, reply.Name, reply.Queue), nil
}

// aboutSchedule returns an action for one schedule.
func aboutSchedule(verb api.AnyVerb, done string) func(*ask, url.Values) (string, error) {
	return func(a *ask, form url.Values) (string, error) {
		queue, name := form.Get("queue"), form.Get("name")
		return fmt.Sprintf("The schedule %s of %s was %s.", name, queue, done), a.verb(verb, queue, api.ScheduleRequest{Name: name}, nil)
	}
}
