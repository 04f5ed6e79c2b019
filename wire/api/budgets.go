package api

import (
	"errors"
	"strconv"
	"strings"

	"github.com/filaq/fila/wire"
)

// MaxBudget is the largest budget, and the largest top-up.
const MaxBudget = 1_000_000_000_000

// BudgetPeriods are the periods of a budget.
var BudgetPeriods = []string{"hour", "day", "week", "month"}

// OnEmpty are the values of on_empty of a budget.
var OnEmpty = []string{"hold", "dead_letter", "refuse"}

// maxParts is how many parts warn_at can have.
const maxParts = 4

// AllowedParts describes a text of warn_at.
const AllowedParts = "up to four numbers from 0.001 to 1 in rising order, with commas, such as 0.5,0.8"

var errParts = errors.New("allowed are " + AllowedParts)

// ParseParts reads parts of a budget from a text.
func ParseParts(text string) (parts []float64, err error) {
	if text == "" {
		return nil, nil
	}
	for field := range strings.SplitSeq(text, ",") {
		part, err := strconv.ParseFloat(strings.TrimSpace(field), 64)
		if err != nil {
			return nil, errParts
		}
		parts = append(parts, part)
	}
	return parts, checkParts(parts)
}

func checkParts(parts []float64) error {
	last := 0.0
	for _, part := range parts {
		if !(part >= 0.001 && part <= 1 && part > last) {
			return errParts
		}
		last = part
	}
	if len(parts) > maxParts {
		return errParts
	}
	return nil
}

// PartsText is the text of parts of a budget.
func PartsText(parts []float64) string {
	var texts []string
	for _, part := range parts {
		texts = append(texts, strconv.FormatFloat(part, 'f', -1, 64))
	}
	return strings.Join(texts, ",")
}

// CostText writes a cost with commas between thousands.
func CostText(cost float64) string {
	text := wire.Grouped(int64(cost))
	if cost < 0 && cost > -1 {
		text = "-0"
	}
	if _, decimals, _ := strings.Cut(strconv.FormatFloat(cost, 'f', -1, 64), "."); decimals != "" {
		text += "." + decimals
	}
	return text
}

// BudgetInfo is the budget of a throttle key, and what the key has used of it.
type BudgetInfo struct {
	Key    string    `json:"key"`
	Budget float64   `json:"budget"` // cost in a period
	Period string    `json:"period"` // hour, day, week or month
	Zone   string    `json:"zone,omitempty"`
	WarnAt []float64 `json:"warn_at,omitempty"`
	// OnEmpty is what becomes of messages that cost more than is left: dead_letter, refuse, or by
	// default hold.
	OnEmpty string `json:"on_empty,omitempty"`

	Added     float64 `json:"added"`      // to the present period, by top-ups
	Used      float64 `json:"used"`       // in the present period: actual costs, and estimates of what is in flight
	Left      float64 `json:"left"`       // negative: actual costs have exceeded their estimates
	StartedAt string  `json:"started_at"` // RFC 3339: the period
	EndsAt    string  `json:"ends_at"`    // RFC 3339: the period; the next one begins then
}

// Text says how much is used: "4,200,000 of 5,000,000 a month".
func (b *BudgetInfo) Text() string {
	return CostText(b.Used) + " of " + CostText(b.Budget+b.Added) + " " + aPeriod(b.Period)
}

// aPeriod is "an hour" or "a day".
func aPeriod(period string) string {
	if strings.HasPrefix(period, "h") {
		return "an " + period
	}
	return "a " + period
}

// BudgetList answers budget-list.
type BudgetList struct {
	Total   int          `json:"total"` // used in their present period
	Budgets []BudgetInfo `json:"budgets"`
	Next    string       `json:"next,omitempty"` // after of the next request, if there is more
}

// Page returns the page.
func (l *BudgetList) Page() PageOf[BudgetInfo] {
	return PageOf[BudgetInfo]{&l.Budgets, &l.Total, &l.Next, nil, func(b *BudgetInfo) string { return b.Key }}
}

// Shorten implements [Long].
func (l *BudgetList) Shorten(room int) { trim(l.Page(), room) }

// BudgetTopUpRequest adds an amount to the present period of the budget of a throttle key.
type BudgetTopUpRequest struct {
	Key    string  `json:"key,omitempty"` // if the tail of the subject is "_"
	Amount float64 `json:"amount"`        // cost, from 0.001
}

func (r *BudgetTopUpRequest) key() *string { return &r.Key }

func (r *BudgetTopUpRequest) check() *wire.Error {
	if !(r.Amount >= 0.001 && r.Amount <= MaxBudget) {
		return wire.BadField("amount", strconv.FormatFloat(r.Amount, 'g', -1, 64), "allowed are 0.001 to "+strconv.Itoa(MaxBudget))
	}
	return nil
}
