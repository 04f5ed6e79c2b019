package wire

import (
	"errors"
	"fmt"
	"strings"
)

// KeyTemplate makes a key from headers, as the settings fairness_header, throttle_headers and
// circuit_header of a queue say. The zero value makes none.
type KeyTemplate struct {
	// literals[i] precedes the value of headers[i]; the last one follows all values.
	literals []string
	headers  []string
}

// MaxTemplateHeaders is the maximum number of headers in a template.
const MaxTemplateHeaders = 8

// ParseKeyTemplate parses a template: text with the names of headers in braces, such as
// tenant:{tenant}, or a bare name of a header, which is {name}. Empty text is no template.
func ParseKeyTemplate(text string) (t KeyTemplate, err error) {
	if text == "" {
		return t, nil
	}
	if !strings.ContainsAny(text, "{}") {
		text = "{" + text + "}"
	}
	for rest := text; ; {
		literal, after, more := strings.Cut(rest, "{")
		if strings.Contains(literal, "}") {
			return KeyTemplate{}, errors.New("a } has no {")
		}
		t.literals = append(t.literals, literal)
		if !more {
			break
		}
		name, behind, closed := strings.Cut(after, "}")
		switch {
		case !closed:
			return KeyTemplate{}, errors.New("a { has no }")
		case name == "" || !legalHeaderSetting(name):
			return KeyTemplate{}, fmt.Errorf("%s is no header's name that does not start with Fila- or Nats-", Quote(name))
		}
		t.headers = append(t.headers, name)
		rest = behind
	}
	switch key := strings.Join(t.literals, ""); {
	case len(t.headers) > MaxTemplateHeaders:
		return KeyTemplate{}, fmt.Errorf("it names %d headers, at most %d may be", len(t.headers), MaxTemplateHeaders)
	case len(key) >= MaxKeyBytes:
		return KeyTemplate{}, fmt.Errorf("its text alone has %d bytes, and a key at most %d", len(key), MaxKeyBytes)
	case key != "" && CheckKey(key) != nil:
		return KeyTemplate{}, errors.New("a key is UTF-8 without control characters")
	}
	return t, nil
}

// Key returns the key from the first value of each header; "" if one is missing or empty.
func (t *KeyTemplate) Key(headers map[string][]string) string {
	if len(t.headers) == 1 && t.literals[0] == "" && t.literals[1] == "" { // the usual case
		return firstValue(headers, t.headers[0])
	}
	if len(t.headers) == 0 {
		return ""
	}
	var key strings.Builder
	for i, name := range t.headers {
		value := firstValue(headers, name)
		if value == "" {
			return ""
		}
		key.WriteString(t.literals[i])
		key.WriteString(value)
	}
	key.WriteString(t.literals[len(t.headers)])
	return key.String()
}

func firstValue(headers map[string][]string, name string) string {
	if values := headers[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// Bare returns the header if the key is just its value.
func (t *KeyTemplate) Bare() (header string, ok bool) {
	if len(t.headers) == 1 && t.literals[0] == "" && t.literals[1] == "" {
		return t.headers[0], true
	}
	return "", false
}

// Prefix returns the common prefix of all keys of the template.
func (t *KeyTemplate) Prefix() string {
	if len(t.literals) == 0 {
		return ""
	}
	return t.literals[0]
}

// Meant reports whether a limit may be intended for keys of the template, judged by their
// prefix. key is a throttle key, or with prefix the common prefix of the limit's keys. A bare
// header can make any key, but a limit with a prefix of its own is not intended for it.
func (t *KeyTemplate) Meant(key string, prefix bool) bool {
	own := t.Prefix()
	switch {
	case len(t.headers) == 0:
		return false
	case !prefix:
		return strings.HasPrefix(key, own) && len(key) > len(own)
	case own == "":
		return key == ""
	}
	return strings.HasPrefix(own, key) || strings.HasPrefix(key, own)
}

// Same reports whether two templates make the same key from equal values.
func (t *KeyTemplate) Same(o *KeyTemplate) bool {
	return len(t.headers) == 1 && len(o.headers) == 1 && t.literals[0] == o.literals[0] && t.literals[1] == o.literals[1]
}

// Headers returns the names of the headers in the template.
func (t *KeyTemplate) Headers() []string { return t.headers }
