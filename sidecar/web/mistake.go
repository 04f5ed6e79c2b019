package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/filaq/fila/wire"
)

// mistake is a form that was refused. The page of the form is shown again with the values
// that were sent, and with the reason beside the field.
type mistake struct {
	Action string // of the form, after /do/
	Field  string // the wrong field; "": not known
	Text   string
	form   url.Values
	status int
}

// fieldError is an error in one field of a form.
type fieldError struct {
	field string
	error
}

func (e *fieldError) Unwrap() error { return e.error }

// wrongField returns an error in one field of a form.
func wrongField(field, format string, args ...any) error {
	return &fieldError{field, fmt.Errorf(format, args...)}
}

// backTo is an error that shows the page of the form again.
type backTo struct {
	path string // after the base path
	form string
	error
}

func mistakeFrom(action string, form url.Values, err error) *mistake {
	m := &mistake{Action: action, Text: err.Error(), form: form, status: http.StatusBadRequest}
	var refused *wire.Error
	if errors.As(err, &refused) {
		m.Text, m.status = refused.Description, refused.Code
	}
	var field *fieldError
	if errors.As(err, &field) {
		m.Field = field.field
	}
	return m
}

type mistakeKey struct{}

// mistakeOf returns the mistake that a request shows the page of a form again for.
func mistakeOf(r *http.Request) *mistake {
	m, _ := r.Context().Value(mistakeKey{}).(*mistake)
	return m
}

// refuse replies to a refused form with the page that it was on.
func (w *Web) refuse(a *ask, act *action, err error) {
	back := a.r.PostForm.Get("back")
	if back == "" || !w.again(a, strings.TrimPrefix(w.local(back), w.base), mistakeFrom(act.name, a.r.PostForm, err)) {
		w.failed(a, err)
	}
}

// again replies with the page at a path as its form was sent. It reports false if this reply
// is for a mistake already.
func (w *Web) again(a *ask, path string, m *mistake) bool {
	to, err := url.Parse(w.base + path)
	if err != nil || mistakeOf(a.r) != nil {
		return false
	}
	r := a.r.Clone(context.WithValue(a.r.Context(), mistakeKey{}, m))
	r.Method, r.URL, r.RequestURI, r.Body = http.MethodGet, to, to.RequestURI(), http.NoBody
	r.Form, r.PostForm, r.Pattern = nil, nil, ""
	w.pages.ServeHTTP(a.rw, r)
	return true
}

// Refused reports whether this form was refused. Pairs are fields that tell forms of the same
// action apart, with their values.
func (v *view) Refused(action string, pairs ...string) bool {
	if v.Mistake == nil || v.Mistake.Action != action {
		return false
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if v.Mistake.form.Get(pairs[i]) != pairs[i+1] {
			return false
		}
	}
	return true
}

// formField is a field of a form with its label.
type formField struct {
	ID, Name, Label, Value, Hint string
	Error                        string // why the form was refused, if this is the field
	Required                     bool
}

// Field returns a field of the form of an action. Its id is id, or its name. It has the value
// that was sent if the form was refused, otherwise this one.
func (v *view) Field(action, name, id, label, value, hint string) formField {
	if id == "" {
		id = name
	}
	f := formField{ID: id, Name: name, Label: label, Value: value, Hint: hint}
	if v.Refused(action) {
		f.Value = v.Mistake.form.Get(name)
		if v.Mistake.Field == name {
			f.Error = v.Mistake.Text
		}
	}
	return f
}

// Sent returns the value that was sent with a refused form, otherwise this one.
func (v *view) Sent(action, name, value string) string {
	if v.Refused(action) {
		return v.Mistake.form.Get(name)
	}
	return value
}

// WrongID is the id of the wrong field of the refused form, for a link.
func (v *view) Needed(f formField) formField {
	f.Required = true
	return f
}
