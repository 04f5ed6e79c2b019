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
	seen, err := scanObject(body, fieldNames(into))
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields() // for nested objects
	if err := dec.Decode(into); err != nil {
		return nil, describeJSON(err)
	}
	return seen, nil
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
	switch {
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
