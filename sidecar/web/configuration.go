package web

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/filaq/fila/wire/api"
)

// configurationData is the runtime configuration.
type configurationData struct {
	Prefix   string
	Entries  api.ConfigList
	MoreLink string // address of the next page of entries
}

func configuration(a *ask) (any, error) {
	d := &configurationData{Prefix: a.query("prefix")}
	if err := a.verb(api.VerbConfigList, "", api.KeyListRequest{Prefix: d.Prefix, After: a.query("after"), Limit: perPage}, &d.Entries); err != nil {
		return nil, err
	}
	if d.Entries.Next != "" {
		d.MoreLink = href(a.web.base, "/settings", "prefix", d.Prefix, "after", d.Entries.Next)
	}
	return d, nil
}

// configKey returns a key as the tail of a subject.
func configKey(form url.Values) string { return strings.TrimSpace(form.Get("key")) }

func setConfig(a *ask, form url.Values) (string, error) {
	req := api.ConfigSetRequest{Value: form.Get("value")}
	if was, known := form["was"]; known && len(was) == 1 { // another change may have come in between
		req.IfValue = &was[0]
	}
	return fmt.Sprintf("%s is set.", configKey(form)), a.verb(api.VerbConfigSet, configKey(form), req, nil)
}

// configBack gives a key the value that it had before, unless it has been changed again since.
func configBack(a *ask, form url.Values) (string, error) {
	key := configKey(form)
	if form.Has("old") {
		is := form.Get("new")
		req := api.ConfigSetRequest{Value: form.Get("old"), IfValue: &is}
		return fmt.Sprintf("%s is set back to %s.", key, short(60, req.Value)), a.verb(api.VerbConfigSet, key, req, nil)
	}
	var now api.ConfigEntry
	if err := a.verb(api.VerbConfigGet, key, nil, &now); err != nil {
		return "", err
	}
	if now.Value != form.Get("new") {
		return "", fmt.Errorf("%s has been changed again since: now it is %s", key, short(60, now.Value))
	}
	return deleteConfig(a, form)
}

// asksConfigBack says what configBack changes.
func asksConfigBack(form url.Values) string {
	if form.Has("old") {
		return about("Set %s from %s back to %s? What reads the key gets the value from then on.", "key", "new", "old")(form)
	}
	return about("Delete the configuration key %s?", "key")(form)
}

func deleteConfig(a *ask, form url.Values) (string, error) {
	return fmt.Sprintf("%s is deleted.", configKey(form)), a.verb(api.VerbConfigDelete, configKey(form), nil, nil)
}

func reload(a *ask, _ url.Values) (string, error) {
	var reply api.ReloadReply
	if err := a.verb(api.VerbReload, "", nil, &reply); err != nil {
		return "", err
	}
	note := "The files were reloaded. Nothing has changed."
	if len(reply.Changes) > 0 {
		note = "The files were reloaded. Changed: " + strings.Join(reply.Changes, "; ") + "."
	}
	if len(reply.NotReloaded) > 0 {
		note += " Not at all nodes: " + strings.Join(reply.NotReloaded, "; ") + "."
	}
	return note, nil
}
