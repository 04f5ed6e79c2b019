// Package schemas has the JSON Schemas of the protocol: of every request, reply, event, error and
// header set, the AsyncAPI document of all subjects, and the JSON Schema of the documents of fila apply. The files are made from the Go types by
// package generator.
package schemas

import (
	"embed"
	"slices"
	"strings"
)

//go:embed *.json
var files embed.FS

// Names returns the names of all schemas, sorted.
func Names() (names []string) {
	entries, _ := files.ReadDir(".") // an embedded directory can be read
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".json"))
	}
	slices.Sort(names)
	return names
}

// Get returns a schema by its name, such as queue-create.request.
func Get(name string) (schema []byte, ok bool) {
	schema, err := files.ReadFile(name + ".json")
	return schema, err == nil
}
