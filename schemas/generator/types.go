package generator

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/filaq/fila/wire"
)

// Schema is a JSON Schema, with the keywords that the types of fila need.
type Schema struct {
	Dialect     string             `json:"$schema,omitempty"`
	ID          string             `json:"$id,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Ref         string             `json:"$ref,omitempty"`
	AnyOf       []*Schema          `json:"anyOf,omitempty"`
	Type        any                `json:"type,omitempty"` // a name, or several
	Const       any                `json:"const,omitempty"`
	Enum        []string           `json:"enum,omitempty"`
	Minimum     *int64             `json:"minimum,omitempty"`
	Maximum     *int64             `json:"maximum,omitempty"`
	Items       *Schema            `json:"items,omitempty"`
	Pattern     string             `json:"pattern,omitempty"` // of a text; not of a number
	MaxItems    int64              `json:"maxItems,omitempty"`
	MaxProps    int64              `json:"maxProperties,omitempty"`
	Encoding    string             `json:"contentEncoding,omitempty"`
	Default     any                `json:"default,omitempty"`
	Properties  *properties        `json:"properties,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Additional  any                `json:"additionalProperties,omitempty"` // false, or a schema
	Defs        map[string]*Schema `json:"$defs,omitempty"`
}

// properties are the fields of an object, in the order of the Go type.
type properties struct {
	names   []string
	schemas map[string]*Schema
}

func (p *properties) add(name string, s *Schema) {
	if p.schemas == nil {
		p.schemas = make(map[string]*Schema)
	}
	p.names, p.schemas[name] = append(p.names, name), s
}

func (p *properties) remove(name string) {
	p.names = slices.DeleteFunc(p.names, func(other string) bool { return other == name })
	delete(p.schemas, name)
}

// MarshalJSON keeps the order.
func (p *properties) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range p.names {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Quote(name) + ":")
		if err := encode(&b, p.schemas[name]); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// encode encodes v with <, > and & as they are.
func encode(b *bytes.Buffer, v any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// namesOfFiles are settings that neither requests nor replies have.
var namesOfFiles = map[string]bool{"on_enqueue_file": true, "on_failure_file": true}

// emptyIsNull are the lists that are null in replies if they are empty. All others are lists then.
var emptyIsNull = map[string]bool{"throttle_headers": true}

// builder makes the schema of one document from Go types.
type builder struct {
	comments comments
	request  bool // fields with defaults may be missing, others may not be there
	file     bool // of files, which may name other files
	defs     map[string]*Schema
}

// ref returns a reference to the schema of a struct, which it makes once. Its name is the name of
// the type.
func (b *builder) ref(t reflect.Type) *Schema {
	name := t.Name()
	if _, known := b.defs[name]; !known {
		b.defs[name] = nil // a type may contain itself
		b.defs[name] = b.object(reflect.New(t).Elem())
	}
	return &Schema{Ref: "#/$defs/" + name}
}

// object returns the schema of a struct. The values of its fields are their defaults.
func (b *builder) object(v reflect.Value) *Schema {
	t := v.Type()
	s := &Schema{Description: b.comments.of(t, ""), Type: "object", Properties: new(properties)}
	if b.request {
		s.Additional = false
	}
	bounds := b.bounds(t)
	for _, f := range visible(t) {
		name, optional := jsonName(f)
		if namesOfFiles[name] && !b.file {
			continue
		}
		p := b.value(f.Type, !optional && !b.request)
		if emptyIsNull[name] && !b.request {
			p.Type = []string{"array", "null"}
		}
		p.Description = b.comments.of(owner(t, f), f.Name)
		if bound, ok := bounds[name]; ok {
			p.apply(bound)
		}
		given := !v.FieldByIndex(f.Index).IsZero()
		if given {
			p.Default = v.FieldByIndex(f.Index).Interface()
		}
		if !optional && !given {
			s.Required = append(s.Required, name)
		}
		s.Properties.add(name, p)
	}
	return s
}

// bounds returns the bounds of the fields of a request, by JSON name.
func (b *builder) bounds(t reflect.Type) map[string]wire.Bound {
	all := make(map[string]wire.Bound)
	if !b.request {
		return all // a later version may allow more
	}
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			for name, bound := range b.bounds(f.Type) {
				all[name] = bound
			}
		}
	}
	if bounded, ok := reflect.New(t).Interface().(wire.Bounded); ok {
		for _, bound := range bounded.Bounds() {
			all[bound.Field] = bound
		}
	}
	return all
}

// apply narrows the schema of a field to its bounds.
func (s *Schema) apply(b wire.Bound) {
	switch {
	case b.OneOf != nil && s.Type == "array":
		s.Items.Enum = slices.Clone(b.OneOf)
	case b.OneOf != nil:
		s.Enum = slices.Clone(b.OneOf)
		if b.Zero != "" {
			s.Enum = append([]string{""}, s.Enum...)
		}
	case s.Type == "array":
		s.MaxItems = b.Max
	case s.Type == "object":
		s.MaxProps = b.Max
	case b.Zero != "" && b.Min > 1:
		s.AnyOf = []*Schema{{Const: 0, Description: b.Zero}, {Minimum: &b.Min, Maximum: &b.Max}}
	default:
		low := b.Min
		if b.Zero != "" {
			low = 0
		}
		s.Minimum = &low
		if b.Max != math.MaxInt64 {
			s.Maximum = &b.Max
		}
	}
}

// value returns the schema of a field. nullable says that a nil pointer is there as null.
func (b *builder) value(t reflect.Type, nullable bool) *Schema {
	switch t {
	case reflect.TypeFor[wire.Rate]():
		if b.request {
			return &Schema{Type: []string{"string", "number"}}
		}
		return &Schema{Type: "string"}
	case reflect.TypeFor[[]byte]():
		return &Schema{Type: "string", Encoding: "base64"}
	case reflect.TypeFor[json.RawMessage]():
		return b.ref(reflect.TypeFor[wire.FetchRequest]()) // the only one
	}
	switch t.Kind() {
	case reflect.Bool:
		return &Schema{Type: "boolean"}
	case reflect.Float64:
		return &Schema{Type: "number"}
	case reflect.Int, reflect.Int64:
		return &Schema{Type: "integer"}
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		return &Schema{Type: "integer", Minimum: new(int64)}
	case reflect.String:
		return &Schema{Type: "string"}
	case reflect.Slice:
		return &Schema{Type: "array", Items: b.value(t.Elem(), false)}
	case reflect.Map:
		return &Schema{Type: "object", Additional: b.value(t.Elem(), true)}
	case reflect.Struct:
		return b.ref(t)
	case reflect.Interface:
		return &Schema{}
	case reflect.Pointer:
		s := b.value(t.Elem(), false)
		if name, ok := s.Type.(string); nullable && ok {
			s.Type = []string{name, "null"}
		}
		return s
	}
	panic("no schema for " + t.String())
}

// visible returns the fields of a struct that are in its JSON: a field hides the fields of the
// same name in embedded structs.
func visible(t reflect.Type) (fields []reflect.StructField) {
	for _, f := range reflect.VisibleFields(t) {
		name, _ := jsonName(f)
		if f.Anonymous || !f.IsExported() || name == "-" {
			continue
		}
		at := slices.IndexFunc(fields, func(other reflect.StructField) bool {
			same, _ := jsonName(other)
			return same == name
		})
		switch {
		case at < 0:
			fields = append(fields, f)
		case len(f.Index) < len(fields[at].Index):
			fields[at] = f
		}
	}
	return fields
}

func jsonName(f reflect.StructField) (name string, optional bool) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name, options == "omitempty"
}

// owner returns the struct in which a field of t is declared.
func owner(t reflect.Type, f reflect.StructField) reflect.Type {
	if len(f.Index) > 1 {
		return t.FieldByIndex(f.Index[:len(f.Index)-1]).Type
	}
	return t
}
