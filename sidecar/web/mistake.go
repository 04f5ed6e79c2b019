package web

import (
	"cmp"
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
	if back == "" || !w.again(a, strings.TrimPrefix(w.local(back), w.base), mistakeFrom(cmp.Or(act.form, act.name), a.r.PostForm, err)) {
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

// Refused reports whether a form was refused. The form is an action, with a field and its value
// behind it if a page has several forms of the action: "pause kind=key".
func (v *view) Refused(form string) bool {
	if v.Mistake == nil {
		return false
	}
	action, which, several := strings.Cut(form, " ")
	name, value, _ := strings.Cut(which, "=")
	return v.Mistake.Action == action && (!several || v.Mistake.form.Get(name) == value)
}

// formField is a field of a form with its label.
type formField struct {
	ID, Name, Label, Value, Hint string
	Error                        string // why the form was refused, if this is the field
	Required                     bool
}

// Field returns a field of a form. Its id is id, or its name. It has the value that was sent if
// the form was refused, otherwise this one.
func (v *view) Field(form, name, id, label, value, hint string) formField {
	f := formField{ID: cmp.Or(id, name), Name: name, Label: label, Value: v.Sent(form, name, value), Hint: hint}
	if v.Refused(form) && v.Mistake.Field == name {
		f.Error = v.Mistake.Text
	}
	return f
}

// Needed returns a field that must not be empty.
func (v *view) Needed(f formField) formField {
	f.Required = true
	return f
}

// Sent returns the value that was sent with a refused form, otherwise this one.
func (v *view) Sent(form, name, value string) string {
	if v.Refused(form) {
		return v.Mistake.form.Get(name)
	}
	return value
}
