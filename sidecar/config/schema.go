package config

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/filaq/fila/wire"
)

// schema describes what may stand under one key of the configuration. It is
// read off the koanf tags of Config, so it cannot fall behind it.
type schema struct {
	kind   reflect.Kind       // Struct, Slice, String, Bool, Int64, Int or Float64
	rate   bool               // a String that may be written as a number
	fields map[string]*schema // of a Struct
	elem   *schema            // of a Slice
}

var configSchema = schemaOf(reflect.TypeFor[Config]())

func schemaOf(t reflect.Type) *schema {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	s := &schema{kind: t.Kind(), rate: t == reflect.TypeFor[wire.Rate]()}
	switch t.Kind() {
	case reflect.Slice:
		s.elem = schemaOf(t.Elem())
	case reflect.Struct:
		s.fields = make(map[string]*schema)
		for _, field := range reflect.VisibleFields(t) { // including the fields of CircuitLimits
			if tag := field.Tag.Get("koanf"); tag != "" && tag != "-" {
				s.fields[tag] = schemaOf(field.Type)
			}
		}
	}
	return s
}

// lookup finds the schema of a dotted key. Lists of tables have no key of their own
// in the environment and in flags.
func (s *schema) lookup(key string) (*schema, bool) {
	for part := range strings.SplitSeq(key, ".") {
		next, ok := s.fields[part]
		if !ok {
			return nil, false
		}
		s = next
	}
	return s, s.kind != reflect.Struct && (s.kind != reflect.Slice || s.elem.kind == reflect.String)
}

// check reports the first value, in the order of the keys, that has no place
// in the schema or the wrong type. path is the value's key; file is named in
// the message.
func (s *schema) check(path string, value any, file string) error {
	switch s.kind {
	case reflect.Struct:
		return s.checkTable(path, value, file)
	case reflect.Slice:
		list, ok := value.([]any)
		if !ok {
			return s.wrongType(path, value, file)
		}
		for i, one := range list {
			if err := s.elem.check(elementPath(path, i, one), one, file); err != nil {
				return err
			}
		}
		return nil
	case reflect.String:
		if _, ok := value.(string); ok {
			return nil
		}
		if _, ok := rateText(value); ok && s.rate {
			return nil
		}
	case reflect.Bool:
		if _, ok := value.(bool); ok {
			return nil
		}
	case reflect.Float64:
		switch value.(type) {
		case int64, float64:
			return nil
		}
	default:
		if n, ok := value.(int64); ok && (s.kind != reflect.Int || int64(int(n)) == n) {
			return nil
		}
	}
	return s.wrongType(path, value, file)
}

func (s *schema) checkTable(path string, value any, file string) error {
	table, ok := value.(map[string]any)
	if !ok {
		return s.wrongType(path, value, file)
	}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		full := join(path, key)
		field, ok := s.fields[key]
		if !ok {
			return fmt.Errorf("unknown key %s in %s%s", full, file, s.suggest(key))
		}
		if err := field.check(full, table[key], file); err != nil {
			return err
		}
	}
	return nil
}

// parse converts the text of an environment variable or a flag to the type
// that the key has in the file. name is what the user wrote.
func (s *schema) parse(name, key, text string) (any, error) {
	switch s.kind {
	case reflect.String:
		return text, nil
	case reflect.Slice:
		var list []any
		for one := range strings.SplitSeq(text, ",") {
			list = append(list, strings.TrimSpace(one))
		}
		return list, nil
	case reflect.Bool:
		switch text {
		case "true", "1":
			return true, nil
		case "false", "0":
			return false, nil
		}
		return nil, fmt.Errorf("%s = %q: allowed is true or false", name, text)
	}
	if strings.HasSuffix(key, "_ms") {
		ms, err := parseMs(text)
		if err != nil {
			return nil, fmt.Errorf("%s = %w", name, err)
		}
		return ms, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%s = %q: allowed is %s", name, text, s.allowed(key))
	}
	return n, nil
}

// exactDigits is how many digits of a decimal number a float64 keeps, whatever
// the number.
const exactDigits = 15

// rateText writes a number of the file as the text of a rate, exactly: 0.1 is
// "0.1", not the binary fraction nearest to it. It reports false for a number
// with more digits than that can be said of, and for anything else.
func rateText(value any) (string, bool) {
	switch n := value.(type) {
	case int64:
		return strconv.FormatInt(n, 10), true
	case float64:
		text := strconv.FormatFloat(n, 'f', -1, 64)
		digits := strings.Trim(strings.NewReplacer(".", "", "-", "").Replace(text), "0")
		return text, len(digits) <= exactDigits
	}
	return "", false
}

func (s *schema) wrongType(path string, value any, file string) error {
	shown := fmt.Sprintf("%v", value)
	switch value := value.(type) {
	case string:
		shown = strconv.Quote(value)
	case map[string]any:
		shown = "a table"
	case []any:
		shown = "a list"
	}
	if secretKey(path) {
		shown = "(not shown)"
	}
	return fmt.Errorf("%s = %s in %s: allowed is %s", path, shown, file, s.allowed(path))
}

// allowed says in words what may stand under the key.
func (s *schema) allowed(key string) string {
	switch s.kind {
	case reflect.Struct:
		return "a table"
	case reflect.Slice:
		if s.elem.kind == reflect.Struct {
			return "[[" + key + "]] tables"
		}
		return "a list of strings"
	case reflect.String:
		if s.rate {
			return `a number per second of at most 15 digits such as 10 or 0.5, or a string such as "1/3"`
		}
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	}
	switch {
	case strings.HasSuffix(key, "_ms"):
		return "a whole number of milliseconds"
	case strings.HasSuffix(key, "_bytes"):
		return "a whole number of bytes"
	}
	return "a whole number"
}

// suggest returns a hint at the key that was probably meant.
func (s *schema) suggest(key string) string {
	if len(key) > 64 { // no slip of the finger
		return ""
	}
	best, distance := "", 3
	for _, known := range slices.Sorted(maps.Keys(s.fields)) {
		if d := editDistance(key, known); d < distance {
			best, distance = known, d
		}
	}
	if best == "" {
		return ""
	}
	return " (did you mean " + best + "?)"
}

// editDistance counts the bytes to insert, delete, replace or swap with their
// neighbour to make b of a (optimal string alignment).
func editDistance(a, b string) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replace := 1
			if a[i-1] == b[j-1] {
				replace = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// elementPath names a table of a list by its name or key, if it has one, since
// nobody counts tables in a file.
func elementPath(path string, i int, value any) string {
	if table, ok := value.(map[string]any); ok {
		for _, key := range []string{"name", "key"} {
			if name, ok := table[key].(string); ok && name != "" && !strings.ContainsFunc(name, unicode.IsControl) {
				return fmt.Sprintf("%s[%s]", path, name)
			}
		}
	}
	return fmt.Sprintf("%s[%d]", path, i)
}

func secretKey(key string) bool {
	return strings.HasSuffix(key, "password") || strings.HasSuffix(key, "token")
}

// parseMs reads a duration as people write it on a command line, 30s or 1h30m, or
// as a bare number of milliseconds. It returns milliseconds.
func parseMs(text string) (int64, error) {
	const (
		allowed = "allowed is a duration such as 30s, 5m or 1h30m, or a number of milliseconds"
		most    = math.MaxInt64 / int64(time.Millisecond)
	)
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if n < 0 || n > most {
			return 0, fmt.Errorf("%q: %s, 0 to %d", text, allowed, most)
		}
		return n, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q: %s", text, allowed)
	}
	if d%time.Millisecond != 0 {
		return 0, fmt.Errorf("%q: nothing finer than a millisecond is allowed", text)
	}
	return d.Milliseconds(), nil
}
