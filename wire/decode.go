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

// DecodeStrict decodes the JSON of a request into the struct that into points
// to. An empty body counts as {}. Refused are: anything but one object of
// valid UTF-8, data after it, fields that the struct does not have (names are
// compared exactly), fields given twice, and values of the wrong type; the
// error names the field. A null leaves a field as it is, and sets a pointer to
// nil. After an error *into may be partly set.
//
// Values that *into has already stay where the body does not mention them. Do
// not decode into a struct that shares slices or pointers with one in use; for
// settings see [QueueSettings.Patch].
func DecodeStrict(body []byte, into any) *Error {
	_, err := decodeStrict(body, into)
	return err
}

// parse decodes a request into r, which has the defaults, and has it checked, or
// completed. A refused request is the zero one.
func parse[R any](body []byte, r R, check func(*R) *Error) (R, *Error) {
	err := DecodeStrict(body, &r)
	if err == nil {
		err = check(&r)
	}
	if err != nil {
		return *new(R), err
	}
	return r, nil
}

// decodeStrict also returns the names of the fields that the body has.
func decodeStrict(body []byte, into any) ([]string, *Error) {
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

// decodeFields decodes an object whose own fields are known to be right.
func decodeFields(body []byte, into any) error {
	if bytes.IndexByte(body[1:], '{') < 0 { // no other object: nothing that only a decoder would refuse
		return json.Unmarshal(body, into)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

// skimObject is a quick scanObject that knows no errors: false says that it cannot
// tell. What it skims need not be JSON. But if the decoder takes it, or the beginning
// of it, then its names are these, and it has no data after it: in what is JSON,
// strings and brackets end where they seem to.
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

// skipSpace returns where there is no white space from i on.
func skipSpace(body []byte, i int) int {
	for i < len(body) && (body[i] == ' ' || body[i] == '\n' || body[i] == '\t' || body[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns where the value ends that begins at i.
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
				return i // it is that of the object around it
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

// scanObject checks that body is one object with no field but the allowed
// ones, each at most once. encoding/json alone would take any case and the
// last of several.
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
		name, _ := tok.(string) // the decoder has refused anything else
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

// fieldCache keeps fieldNames by type: there are a dozen types.
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

// describeJSON turns an error of encoding/json into a refusal in the words of
// the protocol.
func describeJSON(err error) *Error {
	var typ *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	var refused *Error
	switch {
	case errors.As(err, &refused): // a field decodes itself
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
