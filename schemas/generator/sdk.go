package generator

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// sdkDocuments are the documents whose types the worker libraries have. typescriptDocuments and
// typescriptVerbs are the others of the library for TypeScript.
var (
	sdkDocuments = []string{
		"error", "enqueue.reply", "enqueue-batch.reply", "consumer.request", "consume.reply",
		"guard-check.request", "guard-check.reply", "guard-done.request", "guard-done.reply",
	}
	typescriptDocuments = []string{"guard-state.request", "guard-state.reply"}
	typescriptVerbs     = []string{"queue-create", "queue-update", "queue-inspect", "queue-delete", "throttle-set", "throttle-show", "circuit-show"}
)

// sdkFiles returns the types of the worker libraries, by the path of their file in the repository.
func sdkFiles(all map[string]*Schema) map[string]string {
	documents := slices.Concat(sdkDocuments, typescriptDocuments)
	for _, v := range typescriptVerbs {
		documents = append(documents, v+".request", v+".reply")
	}
	ts, partial := sdkTypes(all, documents)
	py, _ := sdkTypes(all, sdkDocuments)
	return map[string]string{
		"sdk/typescript/src/types.ts":         typescript(ts) + typescriptOfVerbs(all, partial),
		"sdk/python/src/fila_worker/types.py": python(py),
	}
}

// sdkTypes returns the types of documents by name. Types of requests and of replies are as in replies, with
// the values that are allowed in requests, for which it changes the schemas; they are also in partial,
// since requests may have some of their fields.
func sdkTypes(all map[string]*Schema, documents []string) (types map[string]*Schema, partial map[string]bool) {
	types, partial = make(map[string]*Schema), make(map[string]bool)
	requests := make(map[string]*Schema)
	for _, name := range documents {
		if strings.HasSuffix(name, ".request") {
			maps.Copy(requests, all[name].Defs)
		} else {
			maps.Copy(types, all[name].Defs)
		}
	}
	for name, request := range requests {
		reply := types[name]
		if reply == nil {
			types[name] = request
			continue
		}
		partial[name] = true
		for field, p := range request.Properties.schemas {
			own := reply.Properties.schemas[field]
			own.Enum = p.Enum
			if _, several := p.Type.([]string); several {
				own.Type = p.Type
			}
		}
	}
	return types, partial
}

const generated = "Made by go test ./schemas/generator -update from the types of the server. Do not edit."

// typescript returns TypeScript interfaces.
func typescript(types map[string]*Schema) string {
	var b strings.Builder
	b.WriteString("// " + generated + "\n// Fields that end in _ms are milliseconds; times are RFC 3339.\n")
	for _, name := range slices.Sorted(maps.Keys(types)) {
		s := types[name]
		fmt.Fprintf(&b, "\n%sexport interface %s {\n", jsDoc("", s.Description), name)
		for _, field := range s.Properties.names {
			p, optional := s.Properties.schemas[field], "?"
			if slices.Contains(s.Required, field) {
				optional = ""
			}
			fmt.Fprintf(&b, "%s  %s%s: %s;\n", jsDoc("  ", p.Description), field, optional, p.typeIn(inTypeScript))
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// typescriptOfVerbs returns the interface AdminVerbs.
func typescriptOfVerbs(all map[string]*Schema, partial map[string]bool) string {
	text := "\n/** Request and reply of admin verbs; {@link Client.admin} accepts other verbs as well. */\nexport interface AdminVerbs {\n"
	for _, v := range typescriptVerbs {
		request := refName(all[v+".request"].Ref)
		if partial[request] {
			request = "Partial<" + request + ">"
		}
		text += fmt.Sprintf("  %q: [%s, %s];\n", v, request, refName(all[v+".reply"].Ref))
	}
	return text + "}\n"
}

func refName(ref string) string { return strings.TrimPrefix(ref, "#/$defs/") }

func jsDoc(indent, text string) string {
	if text == "" {
		return ""
	}
	lines := wrapped(strings.ReplaceAll(text, "*/", "* /"), 110)
	if len(lines) == 1 {
		return indent + "/** " + lines[0] + " */\n"
	}
	return indent + "/**\n" + indent + " * " + strings.Join(lines, "\n"+indent+" * ") + "\n" + indent + " */\n"
}

// language has what types of JSON are called in a language.
type language struct {
	names map[string]string // of simple types
	list  string            // of some type
	dict  string            // of texts to some type
	enum  string            // of some texts
	or    string            // between these texts
}

var (
	inTypeScript = &language{
		names: map[string]string{"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null", "": "unknown"},
		list:  "%s[]", dict: "Record<string, %s>", enum: "%s", or: " | ",
	}
	inPython = &language{
		names: map[string]string{"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None", "": "Any"},
		list:  "list[%s]", dict: "dict[str, %s]", enum: "Literal[%s]", or: ", ",
	}
)

// typeIn returns the type of a field.
func (s *Schema) typeIn(l *language) string {
	switch t := s.Type.(type) {
	case []string:
		var names []string
		for _, name := range t {
			one := *s
			one.Type = name
			names = append(names, one.typeIn(l))
		}
		return strings.Join(names, " | ")
	case string:
		switch {
		case s.Enum != nil:
			return fmt.Sprintf(l.enum, strings.Join(quoteAll(s.Enum), l.or))
		case t == "array":
			item := s.Items.typeIn(l)
			if strings.Contains(item, " | ") {
				item = "(" + item + ")"
			}
			return fmt.Sprintf(l.list, item)
		case t == "object":
			return fmt.Sprintf(l.dict, s.Additional.(*Schema).typeIn(l))
		}
		return l.names[t]
	}
	if s.AnyOf != nil {
		return l.names["integer"] // one of the numbers of errors
	}
	if s.Ref != "" {
		return refName(s.Ref)
	}
	return l.names[""]
}

func quoteAll(texts []string) (quoted []string) {
	for _, text := range texts {
		b, err := json.Marshal(text)
		if err != nil {
			panic(err) // of a string
		}
		quoted = append(quoted, string(b))
	}
	return quoted
}

// pythonKeyword finds names of fields that cannot be attributes of a class.
var pythonKeyword = regexp.MustCompile(`^(and|as|class|from|global|if|in|is|not|or|pass|return|with)$`)

// python returns TypedDicts of Python.
func python(types map[string]*Schema) string {
	var b strings.Builder
	b.WriteString("\"\"\"" + generated + "\n\nFields of a class with ``total=False`` may be missing. Fields that end in _ms are milliseconds.\n\"\"\"\n\n")
	b.WriteString("from __future__ import annotations\n\nfrom typing import Literal, TypedDict\n")
	for _, name := range slices.Sorted(maps.Keys(types)) {
		s := types[name]
		total := ", total=False"
		if len(s.Required) == len(s.Properties.names) {
			total = ""
		}
		if slices.ContainsFunc(s.Properties.names, pythonKeyword.MatchString) {
			fmt.Fprintf(&b, "\n\n%s%s = TypedDict(\n    %q,\n    {\n", pythonComment("", s.Description), name, name)
			for _, field := range s.Properties.names {
				p := s.Properties.schemas[field]
				fmt.Fprintf(&b, "%s        %q: %q,\n", pythonComment("        ", p.Description), field, p.typeIn(inPython))
			}
			fmt.Fprintf(&b, "    },\n%s)\n", strings.ReplaceAll(total, ", total=False", "    total=False,\n"))
			continue
		}
		fmt.Fprintf(&b, "\n\nclass %s(TypedDict%s):\n%s", name, total, pythonDoc(s.Description))
		for _, field := range s.Properties.names {
			p := s.Properties.schemas[field]
			fmt.Fprintf(&b, "%s    %s: %s\n", pythonComment("    ", p.Description), field, p.typeIn(inPython))
		}
	}
	return b.String()
}

func pythonDoc(text string) string {
	lines := wrapped(text, 100)
	if len(lines) < 2 {
		return fmt.Sprintf("    \"\"\"%s\"\"\"\n\n", text)
	}
	return "    \"\"\"" + strings.Join(lines, "\n    ") + "\n    \"\"\"\n\n"
}

func pythonComment(indent, text string) (comment string) {
	for _, line := range wrapped(text, 100) {
		comment += indent + "# " + line + "\n"
	}
	return comment
}

// wrapped breaks a text into lines of at most n characters.
func wrapped(text string, n int) (lines []string) {
	for _, word := range strings.Fields(text) {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+1+len(word) <= n {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}
