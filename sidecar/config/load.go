package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/parsers/toml/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
	gotoml "github.com/pelletier/go-toml/v2"

	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/wire"
)

const envPrefix = "FILA_"

// Sources is where a configuration comes from. Later fields win over earlier ones.
type Sources struct {
	File    string   // of --config; must exist
	Search  []string // tried in order when File is empty; none needs to exist
	Environ []string // as os.Environ
	Flags   []Setting
}

// Setting is a value that stands outside of the file.
type Setting struct {
	Name string // what the user wrote: "--port"
	Key  string // of the configuration: "nats.embedded.port"
	Text string // the value
}

// Loaded is a valid configuration and what the user should know of it.
type Loaded struct {
	Config
	File     string   // that was read; "" when there is none
	Warnings []string // one line each
}

// Load puts the configuration together and validates it. Its Reload reads the file
// that was found now, again with the same environment and flags. Every error is one
// line that names the key, the value and what is allowed.
func Load(from Sources) (*Loaded, error) {
	path, err := findFile(from)
	if err != nil {
		return nil, err
	}
	k := koanf.New(".")
	if path != "" {
		if err := loadFile(k, path); err != nil {
			return nil, err
		}
	}
	env, warnings := settingsOf(from.Environ)
	for _, s := range append(env, from.Flags...) {
		if err := merge(k, s); err != nil {
			return nil, err
		}
	}

	loaded := &Loaded{Config: Default(), File: path, Warnings: warnings}
	if err := loaded.decode(k, path); err != nil {
		return nil, err
	}
	if err := loaded.NATS.applyContext(); err != nil {
		return nil, err
	}
	if path != "" {
		loaded.Reload = from.reload(path)
	}
	return loaded, loaded.Validate()
}

// reload returns a function that loads from the same sources, but from no file
// other than path.
func (from Sources) reload(path string) func() (Config, error) {
	from.File, from.Search = "", []string{path}
	return func() (Config, error) {
		again, err := Load(from)
		if err != nil {
			return Config{}, err
		}
		if again.File == "" {
			return Config{}, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
		}
		return again.Config, nil
	}
}

func findFile(from Sources) (string, error) {
	if from.File != "" {
		if _, err := os.Stat(from.File); err != nil {
			return "", fmt.Errorf("--config %s: %w", from.File, pathCause(err))
		}
		return from.File, nil
	}
	for _, path := range from.Search {
		_, err := os.Stat(path)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("%s: %w", path, pathCause(err))
		}
	}
	return "", nil
}

// loadFile checks the file's keys and types before they are merged, while it
// is still known that they came from the file.
func loadFile(k *koanf.Koanf, path string) error {
	if err := k.Load(file.Provider(path), toml.Parser()); err != nil {
		var syntax *gotoml.DecodeError
		if errors.As(err, &syntax) {
			row, column := syntax.Position()
			return fmt.Errorf("%s:%d:%d: %s", path, row, column, strings.TrimPrefix(syntax.Error(), "toml: "))
		}
		return fmt.Errorf("%s: %s", path, strings.TrimPrefix(pathCause(err).Error(), "toml: "))
	}
	return configSchema.check("", k.Raw(), path)
}

// settingsOf reads FILA_* variables: FILA_NATS__URL is nats.url. Names that mean
// nothing are warnings, since the environment is shared.
func settingsOf(environ []string) (settings []Setting, warnings []string) {
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		name, text, _ := strings.Cut(entry, "=")
		rest, ours := strings.CutPrefix(name, envPrefix)
		if !ours {
			continue
		}
		key := strings.ToLower(strings.ReplaceAll(rest, "__", "."))
		if _, ok := configSchema.lookup(key); !ok {
			warnings = append(warnings, fmt.Sprintf("environment variable %s is not a setting of fila; it is ignored", name))
			continue
		}
		settings = append(settings, Setting{name, key, text})
	}
	return settings, warnings
}

// merge replaces a setting.
func merge(k *koanf.Koanf, s Setting) error {
	field, ok := configSchema.lookup(s.Key)
	if !ok {
		return fmt.Errorf("%s: there is no key %s", s.Name, s.Key)
	}
	value, err := field.parse(s.Name, s.Key, s.Text)
	if err != nil {
		return err
	}
	return k.Set(s.Key, value)
}

// decode lays the merged keys over the defaults that c has, without weak
// conversions.
func (c *Config) decode(merged *koanf.Koanf, path string) error {
	strict := koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{Squash: true, ErrorUnused: true, DecodeHook: decodeHook}}
	if err := merged.UnmarshalWithConf("", c, strict); err != nil {
		return err
	}
	for i := range c.Queues {
		if err := readScripts(&c.Queues[i], filepath.Dir(path)); err != nil {
			return fmt.Errorf("queue %q in %s: %w", c.Queues[i].Name, path, err)
		}
	}
	return nil
}

// decodeHook gives queues and retry policies the defaults of their names, over
// which their tables are laid then, has circuits note which zeros are meant, and
// makes the text of a rate of a number.
func decodeHook(from, to reflect.Value) (any, error) {
	value := from.Interface()
	table, _ := value.(map[string]any)
	name, _ := table["name"].(string)
	switch into := to.Addr().Interface().(type) {
	case *wire.QueueSettings:
		*into = wire.DefaultQueueSettings(name)
	case *rules.RetryPolicy:
		*into = rules.DefaultRetryPolicy(name)
	case *CircuitTable:
		into.Zeros = zeros(table)
	case *wire.Rate:
		if text, ok := rateText(value); ok {
			return text, nil
		}
	}
	return value, nil
}

// maxScriptFile bounds what is read as a script; the limit on scripts
// themselves is lower and is the hook compiler's to enforce.
const maxScriptFile = 1 << 20

// readScripts replaces on_enqueue_file and on_failure_file, relative to dir,
// by the text of the files.
func readScripts(q *wire.QueueSettings, dir string) error {
	for _, hook := range []struct {
		key        string
		text, file *string
	}{
		{"on_enqueue", &q.OnEnqueue, &q.OnEnqueueFile},
		{"on_failure", &q.OnFailure, &q.OnFailureFile},
	} {
		if *hook.file == "" {
			continue
		}
		if *hook.text != "" {
			return fmt.Errorf("%s and %s_file are both set: one of them is allowed", hook.key, hook.key)
		}
		path := *hook.file
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		text, err := ReadScript(path)
		if err != nil {
			return fmt.Errorf("%s_file = %q: %w", hook.key, *hook.file, err)
		}
		*hook.text, *hook.file = text, ""
	}
	return nil
}

// ReadScript reads the file of a hook script.
func ReadScript(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, pathCause(err))
	}
	if info.Size() > maxScriptFile {
		return "", fmt.Errorf("%s has %d bytes: that is no hook script", path, info.Size())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, pathCause(err))
	}
	if strings.TrimSpace(string(text)) == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return string(text), nil
}

// pathCause strips operation and path from a file error: the caller names the
// path already.
func pathCause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
