package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

	tables, _ := k.Get("queue").([]any)
	k.Delete("queue")
	if err := decode(k, &loaded.Config); err != nil {
		return nil, err
	}
	if loaded.Queues, err = decodeQueues(tables, path); err != nil {
		return nil, err
	}
	if err := applyNATSContext(&loaded.NATS); err != nil {
		return nil, err
	}
	return loaded, loaded.Validate()
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

// decodeQueues lays each [[queue]] table over the defaults and reads its
// script files.
func decodeQueues(tables []any, file string) ([]wire.QueueSettings, error) {
	var queues []wire.QueueSettings
	for _, one := range tables {
		table := one.(map[string]any) // loadFile has checked it
		name, _ := table["name"].(string)
		settings := wire.DefaultQueueSettings(name)
		k := koanf.New(".")
		if err := k.Load(confmap.Provider(table, ""), nil); err != nil {
			return nil, err
		}
		if err := decode(k, &settings); err != nil {
			return nil, err
		}
		if err := readScripts(&settings, filepath.Dir(file)); err != nil {
			return nil, fmt.Errorf("queue %q in %s: %w", name, file, err)
		}
		queues = append(queues, settings)
	}
	return queues, nil
}

// decode fills the struct from the merged keys, without weak conversions.
func decode(k *koanf.Koanf, into any) error {
	return k.UnmarshalWithConf("", into, koanf.UnmarshalConf{
		Tag:           "koanf",
		DecoderConfig: &mapstructure.DecoderConfig{Result: into, ErrorUnused: true},
	})
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
