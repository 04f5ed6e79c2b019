package applycmd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
)

// maxDocuments bounds the bytes of a file with documents.
const maxDocuments = 16 << 20

// document describes an object.
type document struct {
	Kind string         `yaml:"kind"`
	Name string         `yaml:"name"`
	Spec map[string]any `yaml:"spec"`

	file string // "-": standard input
	line int
}

// fail returns an error that says where it is.
func (d *document) fail(format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w", d.file, d.line, fmt.Errorf(format, args...))
}

// readDocuments reads the documents of files and directories, in the order of the paths. The files of
// a directory are the ones that end in .yaml and .yml, in the order of their names, also in directories
// below it whose names do not begin with a dot.
func readDocuments(paths []string, in io.Reader) (all []*document, err error) {
	for _, path := range paths {
		files := []string{path}
		if path != "-" {
			if files, err = filesIn(path); err != nil {
				return nil, err
			}
		}
		for _, file := range files {
			found, err := readFile(file, in)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no documents in %s: each has kind, name and spec", strings.Join(paths, ", "))
	}
	return all, nil
}

func filesIn(path string) (files []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && file != path && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir // as where a ConfigMap is mounted, whose files are links into one
		}
		if ext := filepath.Ext(file); err == nil && !entry.IsDir() && (ext == ".yaml" || ext == ".yml") {
			files = append(files, file)
		}
		return err
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no files that end in .yaml or .yml", path)
	}
	return files, err
}

func readFile(file string, in io.Reader) (all []*document, err error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // it was only read
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxDocuments+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(text) > maxDocuments {
		return nil, fmt.Errorf("%s has more than %s: allowed is that much", file, terminal.Size(maxDocuments))
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var node yaml.Node
		if err := decoder.Decode(&node); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %s", file, terminal.OneLine(err.Error()))
		}
		if len(node.Content) == 0 || node.Content[0].Tag == "!!null" {
			continue // an empty document
		}
		d := &document{file: file, line: node.Content[0].Line}
		if err := d.read(node.Content[0]); err != nil {
			return nil, err
		}
		all = append(all, d)
	}
}

// read takes over what a document says.
func (d *document) read(node *yaml.Node) error {
	if node.Kind != yaml.MappingNode {
		return d.fail("allowed is a document with kind, name and spec")
	}
	fields := []string{"kind", "name", "spec"}
	for i := 0; i < len(node.Content); i += 2 {
		if name := node.Content[i].Value; !slices.Contains(fields, name) {
			d.line = node.Content[i].Line
			return d.fail("unknown field %q%s", name, nearest(name, fields))
		}
	}
	if err := node.Decode(d); err != nil {
		return d.fail("%s", terminal.OneLine(err.Error()))
	}
	if d.Kind == "" || d.Name == "" {
		return d.fail("kind and name are missing or empty")
	}
	return nil
}

// nearest is a suggestion for a misspelled name, or all names.
func nearest(name string, all []string) string {
	if near := command.Near(name, all); len(near) > 0 {
		return " (did you mean " + strings.Join(near, " or ") + "?)"
	}
	return ": allowed are " + strings.Join(all, ", ")
}
