package command

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire"
)

// Complain writes a problem as one line. A quotation at its end follows on indented lines, so
// that a mark stays below its place. It ignores a failed write, which it cannot report.
func Complain(w io.Writer, text string) {
	const indented = "\n    "
	first, quoted, found := strings.Cut(text, indented)
	line := "fila: " + terminal.OneLine(first) + "\n"
	if found {
		line += "    " + quoted + "\n"
	}
	_, _ = io.WriteString(w, line)
}

// problem is an error in the output of --json, with the fields of an error reply of the
// protocol. A problem that fila did not report has only a description.
type problem struct {
	Code         int    `json:"code,omitempty"`
	ErrCode      int    `json:"err_code,omitempty"`
	Name         string `json:"name,omitempty"` // of the err_code, as in docs/errors.md
	Description  string `json:"description"`
	RetryAfterMs int64  `json:"retry_after_ms,omitempty"`
}

// complainJSON writes err as one line of JSON; text is its text for people.
func complainJSON(w io.Writer, err error, text string) {
	p := problem{Description: text}
	var r *refusal
	if errors.As(err, &r) {
		p.Code, p.ErrCode, p.RetryAfterMs = r.reply.Code, r.reply.ErrCode, r.reply.RetryAfter.Milliseconds()
		p.Description = strings.Replace(text, r.Error(), r.reply.Description, 1)
		catalog := wire.Catalog()
		if i := slices.IndexFunc(catalog, func(e wire.Entry) bool { return e.ErrCode == p.ErrCode }); i >= 0 {
			p.Name = catalog[i].Name
		}
	}
	_ = terminal.PrintJSONLine(w, map[string]problem{"error": p})
}

// asksForJSON reports whether a command line has --json. It is for command lines whose parsing
// failed.
func asksForJSON(args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return slices.Contains(args, "--json")
}

// refusal is an error reply of fila with a text for people.
type refusal struct{ reply client.Error }

// Error includes the number of the error, for a search in the docs.
func (r *refusal) Error() string {
	text := r.reply.Description
	if r.reply.RetryAfter > 0 {
		text += fmt.Sprintf(" (retry in %s)", r.reply.RetryAfter)
	}
	if r.reply.ErrCode != 0 {
		text += fmt.Sprintf(" [err_code %d]", r.reply.ErrCode)
	}
	return text
}

// badFlag rewords an error of pflag, which quotes strconv for numbers, and repeats value and
// flag for other types.
func badFlag(err error) string {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err.Error()
	}
	flag := "--" + bad.GetFlag().Name
	if errors.Is(err, strconv.ErrSyntax) {
		allowed := map[string]string{"int": "a whole number", "int64": "a whole number", "uint32": "a whole number, 0 or more", "float64": "a number"}
		if want := allowed[bad.GetFlag().Value.Type()]; want != "" {
			return fmt.Sprintf("%s %q: allowed is %s", flag, bad.GetValue(), want)
		}
	}
	if why := bad.Unwrap().Error(); strings.HasPrefix(why, strconv.Quote(bad.GetValue())) {
		return flag + " " + why
	}
	return err.Error()
}
