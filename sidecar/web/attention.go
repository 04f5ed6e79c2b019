package web

import "github.com/filaq/fila/wire/api"

// shownFindings is how many findings a page has.
const shownFindings = 20

// attentionOf returns what is wrong now: with this queue, or with anything for "".
func attentionOf(a *ask, queue string) (found api.Attention, err error) {
	err = a.verb(api.VerbAttention, "", api.AttentionRequest{Queue: queue, Limit: shownFindings}, &found)
	return found, err
}

// severityTone returns the colour of a severity.
func severityTone(severity string) string {
	switch severity {
	case api.SeverityCritical:
		return "bad"
	case api.SeverityWarning:
		return "warn"
	}
	return "info"
}
