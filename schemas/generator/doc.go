// Package generator makes the files of the directory schemas: the JSON Schemas (2020-12) of all
// requests, replies, events, errors and header sets, an AsyncAPI 3 document of all subjects, and the
// JSON Schema of the documents of fila apply. It also makes the types of the worker libraries in sdk.
//
//   - [Documents] lists what is described, with its Go types.
//   - [Files] makes the files. Descriptions are the doc comments of types and fields, ranges and
//     allowed values the [wire.Bound]s that fila checks, defaults the defaults of the verbs.
//
// go test ./schemas/generator -update writes the files, and the test fails when they are old. Package
// schemas embeds them, package schematest checks what fila sends against them.
//
// A request refuses unknown fields, as fila does. A reply may get new fields in later versions.
package generator
