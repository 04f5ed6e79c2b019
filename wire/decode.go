package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// DecodeStrict decodes the JSON of a request into the struct that into points to. An empty
// body is {}. It refuses anything but one object of valid UTF-8, data after it, unknown fields
// (names must match exactly), repeated fields and values of the wrong type; the error names
// the field. A null leaves a field unchanged, and sets a pointer to nil. After an error *into
// may be partly set.
//
// Fields that the body does not name keep their values. Do not decode into a struct that
// shares slices or pointers with one in use; for settings see [QueueSettings.Patch].
func DecodeStrict(body []byte, into any) *Error {
	_, err := DecodeNamed(body, into)
	return err
}

// Decode decodes a request into r, which has the defaults, and checks it. A refused request is
// the zero value.
func Decode[R any](body []byte, r R, check func(*R) *Error) (R, *Error) {
	err := DecodeStrict(body, &r)
	if err == nil {
		err = check(&r)
	}
	if err != nil {
		return *new(R), err
	}
	return r, nil
}

// DecodeNamed also returns the names of the fields in the body.
func DecodeNamed(body []byte, into any) ([]string, *Error) {
	body = bytes.TrimSpace(body)
	if len(body) == 0 {
		return nil, nil
	}
	if !utf8.Valid(body) {
		return nil, BadJSON("not valid UTF-8")
	}
	allowed := fieldNames(into)
	seen, scanned := skimObject(body, allowed)
	if !scanned {
		var err *Error
		if seen, err = scanObject(body, allowed); err != nil {
			return nil, err
		}
	}
	if err := decodeFields(body, into); err != nil {
		if scanned {
			if _, err := scanObject(body, allowed); err != nil {
				return nil, err
			}
		}
		return nil, describeJSON(err)
	}
	return seen, nil
}

// decodeFields decodes an object whose own field names have been checked.
func decodeFields(body []byte, into any) error {
	if bytes.IndexByte(body[1:], '{') < 0 { // no inner object, whose fields Unmarshal would not check
		return json.Unmarshal(body, into)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

// skimObject is a fast scanObject without errors; false means that the slow one has to decide.
// It does not validate the JSON. But if the decoder accepts the body, then these are its field
// names and there is no data after it, because in valid JSON strings and brackets end where
// they seem to.
func skimObject(body []byte, allowed []string) (seen []string, ok bool) {
	i := skipSpace(body, 1)
	if body[0] != '{' || i == len(body) {
		return nil, false
	}
	if body[i] == '}' {
		return nil, i+1 == len(body)
	}
	seen = make([]string, 0, 8)
	for {
		begin := i
		if i = skipValue(body, i); i < begin+2 || body[begin] != '"' {
			return nil, false
		}
		quoted := body[begin+1 : i-1]
		at := slices.IndexFunc(allowed, func(name string) bool { return name == string(quoted) }) // no name has an escape in it
		if at < 0 || slices.Contains(seen, allowed[at]) {
			return nil, false
		}
		seen = append(seen, allowed[at])
		if i = skipSpace(body, i); i == len(body) || body[i] != ':' {
			return nil, false
		}
		if i = skipSpace(body, skipValue(body, skipSpace(body, i+1))); i == len(body) {
			return nil, false
		}
		if body[i] == '}' {
			return seen, i+1 == len(body)
		}
		if body[i] != ',' {
			return nil, false
		}
		i = skipSpace(body, i+1)
	}
}

// skipSpace returns the first index from i on without white space.
func skipSpace(body []byte, i int) int {
	for i < len(body) && (body[i] == ' ' || body[i] == '\n' || body[i] == '\t' || body[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns the end of the value that begins at i.
func skipValue(body []byte, i int) int {
	depth := 0
	for ; i < len(body); i++ {
		switch body[i] {
		case '"':
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
			if i >= len(body) {
				return len(body)
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			if depth == 0 {
				return i // it ends the enclosing object
			}
			depth--
		case ',', ':', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
			continue
		default:
			continue
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(body)
}

// scanObject checks that body is one object with only allowed fields, each at most once.
// encoding/json alone accepts names in any case, and the last of repeated fields.
func scanObject(body []byte, allowed []string) ([]string, *Error) {
	if body[0] != '{' {
		return nil, BadJSON("a JSON object is expected")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	_, _ = dec.Token() // the brace
	var seen []string
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, describeJSON(err)
		}
		name, _ := tok.(string) // the decoder refuses anything else
		if !slices.Contains(allowed, name) {
			return nil, UnknownField(name, allowed)
		}
		if slices.Contains(seen, name) {
			return nil, FieldRepeated(name)
		}
		seen = append(seen, name)
		var skip json.RawMessage
		if err := dec.Decode(&skip); err != nil {
			return nil, describeJSON(err)
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, describeJSON(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, BadJSON("there is data after the JSON object")
	}
	return seen, nil
}

// fieldCache caches fieldNames by type.
var fieldCache sync.Map // reflect.Type -> []string

// fieldNames returns the JSON names of the struct that into points to, in the
// order of its fields.
func fieldNames(into any) []string {
	t := reflect.TypeOf(into).Elem()
	if names, ok := fieldCache.Load(t); ok {
		return names.([]string)
	}
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && !f.Anonymous && name != "" && name != "-" {
			names = append(names, name)
		}
	}
	fieldCache.Store(t, names)
	return names
}

// describeJSON maps an error of encoding/json to a refusal.
func describeJSON(err error) *Error {
	var typ *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	var refused *Error
	switch {
	case errors.As(err, &refused): // by a field's UnmarshalJSON
		return refused
	case errors.As(err, &typ):
		return BadJSON(fmt.Sprintf("%s: %s is expected, got %s", typ.Field, jsonKind(typ.Type), typ.Value))
	case errors.As(err, &syntax):
		return BadJSON(fmt.Sprintf("%v at byte %d", syntax, syntax.Offset))
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return BadJSON("it ends too early")
	}
	return BadJSON(strings.TrimPrefix(err.Error(), "json: "))
}

func jsonKind(t reflect.Type) string {
	if t == reflect.TypeFor[Rate]() {
		return "a number per second, or one in quotes,"
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a whole number of 64 bits"
}

// InRange refuses a number of a request that is out of its range.
func InRange[T int | int64](name string, value, lo, hi T) *Error {
	if value >= lo && value <= hi {
		return nil
	}
	return BadField(name, fmt.Sprint(value), fmt.Sprintf("allowed are %d to %d", lo, hi))
}
