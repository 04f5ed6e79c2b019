package generator

import (
	"reflect"
	"slices"
	"strings"

	"github.com/filaq/fila/cli/applycmd"
)

// durationText is a pattern of the durations that fila apply reads, such as 1h30m.
const durationText = `^(0|([0-9.]+(ns|us|µs|ms|s|m|h))+)$`

// applySchema returns the schema of a document of fila apply.
func applySchema(c comments) *Schema {
	b := &builder{comments: c, request: true, file: true, defs: make(map[string]*Schema)}
	s := head("apply", "A document of fila apply and fila diff.")
	s.Defs = b.defs
	for _, kind := range applycmd.Specs() {
		fields := b.object(reflect.ValueOf(kind.Fields))
		fields.Properties.remove("name")
		fields.Properties.remove("key")
		fields.Required = kind.Required
		fields.allowDurations()
		b.defs[kind.Kind] = fields
		d := &Schema{Type: "object", Properties: new(properties), Required: []string{"kind", "name"}, Additional: false}
		d.Properties.add("kind", &Schema{Const: kind.Kind})
		d.Properties.add("name", &Schema{Type: "string"})
		d.Properties.add("spec", &Schema{Ref: "#/$defs/" + kind.Kind})
		if kind.Required != nil {
			d.Required = append(d.Required, "spec")
		}
		s.AnyOf = append(s.AnyOf, d)
	}
	return s
}

// allowDurations allows durations for milliseconds, and the names of these fields without _ms.
func (s *Schema) allowDurations() {
	for _, name := range slices.Clone(s.Properties.names) {
		if short, ok := strings.CutSuffix(name, "_ms"); ok {
			p := s.Properties.schemas[name]
			p.Type, p.Pattern = []string{"integer", "string"}, durationText
			s.Properties.add(short, &Schema{Type: "string", Pattern: durationText, Description: strings.TrimSpace("A duration such as 1h30m. " + p.Description)})
		}
	}
}
