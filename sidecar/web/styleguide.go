package web

import (
	"time"

	"github.com/filaq/fila/wire"
)

// styleData has examples for the components.
type styleData struct {
	ID           string
	Before, Soon string
	Tabs         []navItem
	Wrong        formField
}

// styleGuide shows each component of templates/components once.
func styleGuide(*ask) (any, error) {
	now := time.Now()
	at := func(d time.Duration) string { return wire.Timestamp(now.Add(d).UnixNano()) }
	return &styleData{
		ID: "0198c3ab-7f00-7000-8000-000000000001", Before: at(-2 * time.Minute), Soon: at(5 * time.Second),
		Tabs:  []navItem{{Title: "Overview", Path: "#tabs", Here: true, Exact: true}, {Title: "Messages", Path: "#tabs"}},
		Wrong: formField{ID: "for", Name: "for", Label: "For", Value: "soon", Error: `"soon" is not a duration: allowed are durations such as 90s, 30m or 2h, and an empty field for no end`},
	}, nil
}
