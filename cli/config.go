package cli

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
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	gotoml "github.com/pelletier/go-toml/v2"
	"github.com/spf13/pflag"

	"github.com/filaq/fila/sidecar"
	"github.com/filaq/fila/wire"
)

const envPrefix = "FILA_"

// defaultConfigFiles are tried in this order when --config is not given.
var defaultConfigFiles = []string{"config.toml", "/etc/fila/config.toml"}

// configSources is where a configuration comes from. Later fields win over
// earlier ones.
type configSources struct {
	path    string   // of --config; must exist
	search  []string // tried when path is empty; none needs to exist
	environ []string // as os.Environ
	flags   *pflag.FlagSet
	keys    map[string]string // flag name -> configuration key
	json    bool              // --json: the log is JSON unless --log-format says otherwise
}

// loadedConfig is a valid configuration and what the user should know of it.
type loadedConfig struct {
	sidecar.Config
	file     string   // "" when there is none
	warnings []string // one line each
}

// loadConfig puts the configuration together and validates it. Every error is
// one line that names the key, the value and what is allowed.
func loadConfig(from configSources) (*loadedConfig, error) {
	loaded := &loadedConfig{Config: sidecar.Default()}
	k := koanf.New(".")
	path, err := findConfigFile(from)
	if err != nil {
		return nil, err
	}
	if path != "" {
		loaded.file = path
		if err := loadFile(k, path); err != nil {
			return nil, err
		}
	}
	if loaded.warnings, err = loadEnv(k, from.environ); err != nil {
		return nil, err
	}
	if err := loadFlags(k, from); err != nil {
		return nil, err
	}

	queues, policies := takeTables(k, "queue"), takeTables(k, "retry_policy")
	if err := decode(k, &loaded.Config); err != nil {
		return nil, err
	}
	if loaded.Queues, err = decodeQueues(queues, path); err != nil {
		return nil, err
	}
	if loaded.RetryPolicies, err = decodeTables(policies, sidecar.DefaultRetryPolicy); err != nil {
		return nil, err
	}
	if from.json && !from.flags.Changed("log-format") {
		loaded.Log.Format = "json"
	}
	if err := applyNATSContext(&loaded.NATS); err != nil {
		return nil, err
	}
	return loaded, loaded.Validate()
}

// reload returns a function that reads the file again, with the same
// environment and flags, or nil if there is no file.
func (from configSources) reload(file string) func() (sidecar.Config, error) {
	if file == "" {
		return nil
	}
	from.path, from.search = "", []string{file}
	return func() (sidecar.Config, error) {
		again, err := loadConfig(from)
		if err != nil {
			return sidecar.Config{}, err
		}
		if again.file == "" {
			return sidecar.Config{}, fmt.Errorf("%s: %w", file, fs.ErrNotExist)
		}
		return again.Config, nil
	}
}

func findConfigFile(from configSources) (string, error) {
	if from.path != "" {
		if _, err := os.Stat(from.path); err != nil {
			return "", fmt.Errorf("--config %s: %w", from.path, pathCause(err))
		}
		return from.path, nil
	}
	for _, path := range from.search {
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

// loadEnv merges FILA_* variables: FILA_NATS__URL is nats.url. Names that mean
// nothing are returned as warnings, since the environment is shared.
func loadEnv(k *koanf.Koanf, environ []string) (warnings []string, err error) {
	environ = slices.Sorted(slices.Values(environ))
	provider := env.Provider(".", env.Opt{
		Prefix:      envPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, text string) (string, any) {
			key := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, envPrefix), "__", "."))
			field, ok := configSchema.lookup(key)
			if !ok {
				warnings = append(warnings, fmt.Sprintf("environment variable %s is not a setting of fila; it is ignored", name))
				return "", nil
			}
			value, bad := field.parse(name, key, text)
			if bad != nil && err == nil {
				err = bad
			}
			return key, value
		},
	})
	if loadErr := k.Load(provider, nil); err == nil {
		err = loadErr
	}
	return warnings, err
}

// loadFlags merges the flags that were given on the command line.
func loadFlags(k *koanf.Koanf, from configSources) error {
	if from.flags == nil {
		return nil
	}
	var bad error
	provider := posflag.ProviderWithFlag(from.flags, ".", k, func(f *pflag.Flag) (string, any) {
		key, ok := from.keys[f.Name]
		if !ok || !f.Changed {
			return "", nil
		}
		field, ok := configSchema.lookup(key)
		if !ok {
			bad = fmt.Errorf("--%s: there is no key %s", f.Name, key)
			return "", nil
		}
		value, err := field.parse("--"+f.Name, key, f.Value.String())
		if err != nil && bad == nil {
			bad = err
		}
		return key, value
	})
	if err := k.Load(provider, nil); bad == nil {
		bad = err
	}
	return bad
}

// takeTables takes the tables of a list out, which have defaults of their own.
func takeTables(k *koanf.Koanf, key string) []any {
	tables, _ := k.Get(key).([]any)
	k.Delete(key)
	return tables
}

// decodeTables lays each table over the defaults of its name.
func decodeTables[T any](tables []any, defaults func(name string) T) ([]T, error) {
	var decoded []T
	for _, one := range tables {
		table := one.(map[string]any) // loadFile has checked it
		name, _ := table["name"].(string)
		value := defaults(name)
		k := koanf.New(".")
		if err := k.Load(confmap.Provider(table, ""), nil); err != nil {
			return nil, err
		}
		if err := decode(k, &value); err != nil {
			return nil, err
		}
		decoded = append(decoded, value)
	}
	return decoded, nil
}

// decodeQueues reads the script files of queues, too.
func decodeQueues(tables []any, file string) ([]wire.QueueSettings, error) {
	queues, err := decodeTables(tables, wire.DefaultQueueSettings)
	if err != nil {
		return nil, err
	}
	for i := range queues {
		if err := readScripts(&queues[i], filepath.Dir(file)); err != nil {
			return nil, fmt.Errorf("queue %q in %s: %w", queues[i].Name, file, err)
		}
	}
	return queues, nil
}

// decode fills the struct from the merged keys, without weak conversions.
func decode(k *koanf.Koanf, into any) error {
	return k.UnmarshalWithConf("", into, koanf.UnmarshalConf{
		Tag:           "koanf",
		DecoderConfig: &mapstructure.DecoderConfig{Result: into, ErrorUnused: true, DecodeHook: decodeRate},
	})
}

// decodeRate makes the text of a rate of a number.
func decodeRate(_, to reflect.Type, value any) (any, error) {
	if to == reflect.TypeFor[wire.Rate]() {
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
		text, err := readScript(path)
		if err != nil {
			return fmt.Errorf("%s_file = %q: %w", hook.key, *hook.file, err)
		}
		*hook.text, *hook.file = text, ""
	}
	return nil
}

func readScript(path string) (string, error) {
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
