package web

import "html/template"

// icons are the drawings of 16 by 16 units, by name. They take the colour of the text around
// them.
var icons = map[string]string{
	"overview":     "M2.5 2.5h4.5v6h-4.5zM9 2.5h4.5v3.5h-4.5zM9 8h4.5v5.5h-4.5zM2.5 10.500h4.5v3h-4.5z",
	"queues":       "M2 4h12M2 8h12M2 12h8",
	"dead letters": "M2.500 4.500h11v8h-11zM2.500 4.500l5.500 4.500 5.500-4.500M2 2l12 12",
	"gates":        "M3 3v10M13 3v10M3 6h4M13 10h-4",
	"schedules":    "M8 2a6 6 0 1 0 0 12a6 6 0 1 0 0-12M8 4.500v3.500l2.500 1.500",
	"jobs":         "M2.500 4l1.500 1.500 2.500-3M9 4h4.500M2.500 10.500l1.500 1.500 2.500-3M9 10.500h4.500",
	"activity":     "M1.500 8h3l2-5 3 10 2-5h3",
	"cluster":      "M8 2.500l5 2.800v5.400l-5 2.800-5-2.800v-5.400zM8 8v5.500M8 8l5-2.700M8 8l-5-2.700",
	"settings":     "M2 5h6M12 5h2M10 3v4M2 11h2M8 11h6M6 9v4",
	"search":       "M7 2.500a4.500 4.500 0 1 0 0 9a4.500 4.500 0 1 0 0-9M10.300 10.300l3.700 3.700",
	"copy":         "M5.500 5.500h8v8h-8zM10.500 5.500v-3h-8v8h3",
	"more":         "M3 8h.01M8 8h.01M13 8h.01",
	"pause":        "M5.500 3v10M10.500 3v10",
	"play":         "M5 3l8 5-8 5z",
	"ok":           "M3 8.500l3.500 3.500 6.500-8",
	"warn":         "M8 2l6.500 11.500h-13zM8 6.500v3M8 11.500h.01",
	"bad":          "M8 2a6 6 0 1 0 0 12a6 6 0 1 0 0-12M8 5v4M8 11h.01",
	"info":         "M8 2a6 6 0 1 0 0 12a6 6 0 1 0 0-12M8 7.500v3.500M8 5h.01",
	"out":          "M6 3h-3v10h3M10.500 5l3 3-3 3M13 8h-7",
	"empty":        "M2 9.500l2-6h8l2 6v3.500h-12zM2 9.500h3.500l1 1.500h3l1-1.500h3.500",
}

// icon returns a drawing. Readers without sight do not get it: the text beside it says the
// same.
func icon(name string) template.HTML {
	path, ok := icons[name]
	if !ok {
		return ""
	}
	return template.HTML(`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d="` + path + `"/></svg>`) //nolint:gosec // the texts are the ones above
}
