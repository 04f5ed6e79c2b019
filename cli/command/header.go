package command

import "strings"

// ParseHeader parses a header flag, name=value or name:value. The first = or : separates, since
// names cannot have either. Spaces after a colon do not belong to the value.
func ParseHeader(flag, text string) (name, value string, err error) {
	if i := strings.IndexAny(text, "=:"); i > 0 {
		name, value = text[:i], text[i+1:]
		if text[i] == ':' {
			value = strings.TrimLeft(value, " \t")
		}
		if HeaderAllowed(name, value) {
			return name, value, nil
		}
	}
	return "", "", UsageError("--%s %q: allowed is name=value or name:value, on one line, without spaces in the name", flag, text)
}

// HeaderAllowed reports whether NATS carries a header.
func HeaderAllowed(name, value string) bool {
	return name != "" && !strings.ContainsAny(name, ": \t\r\n") && !strings.ContainsAny(value, "\r\n")
}
