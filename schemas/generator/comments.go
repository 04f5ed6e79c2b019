package generator

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// comments are the doc comments of types ("wire.EnqueueReply"), of their fields
// ("wire.EnqueueReply.Queue") and of constants, by value ("Fila-Id").
type comments map[string]string

// of returns the comment of a type, or of one of its fields.
func (c comments) of(t reflect.Type, field string) string {
	if field == "" {
		return c[t.String()]
	}
	return c[t.String()+"."+field]
}

// readComments reads the comments of packages of the module in root.
func readComments(root string, dirs ...string) (comments, error) {
	c := make(comments)
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, path := range files {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
			if err != nil {
				return nil, err
			}
			for _, d := range file.Decls {
				if g, ok := d.(*ast.GenDecl); ok && !strings.HasSuffix(path, "_test.go") {
					c.addDecl(fset, file.Name.Name, g)
				}
			}
		}
	}
	return c, nil
}

func (c comments) addDecl(fset *token.FileSet, pkg string, g *ast.GenDecl) {
	for _, spec := range g.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			typ := pkg + "." + spec.Name.Name
			st, _ := spec.Type.(*ast.StructType)
			names := jsonNames(st)
			delete(names, spec.Name.Name) // a comment begins with the type
			c[typ] = plain(g.Doc.Text(), names)
			if st != nil {
				c.addFields(fset, typ, st)
			}
		case *ast.ValueSpec:
			if len(spec.Values) != 1 {
				continue
			}
			if l, ok := spec.Values[0].(*ast.BasicLit); ok && l.Kind == token.STRING {
				if text, err := strconv.Unquote(l.Value); err == nil && spec.Comment != nil && c[text] == "" {
					c[text] = plain(spec.Comment.Text(), nil)
				}
			}
		}
	}
}

// jsonNames returns the names of the fields of a struct in JSON; st may be nil.
func jsonNames(st *ast.StructType) map[string]string {
	names := make(map[string]string)
	if st == nil {
		return names
	}
	for _, f := range st.Fields.List {
		if len(f.Names) == 1 && f.Tag != nil {
			tag, err := strconv.Unquote(f.Tag.Value)
			if err == nil {
				names[f.Names[0].Name], _, _ = strings.Cut(reflect.StructTag(tag).Get("json"), ",")
			}
		}
	}
	return names
}

// addFields adds the comments of the fields of a struct: the comment before a field and the one
// behind it. A comment before several fields is about all whose names it mentions.
func (c comments) addFields(fset *token.FileSet, typ string, st *ast.StructType) {
	names := jsonNames(st)
	group, last := "", 0
	for _, f := range st.Fields.List {
		if len(f.Names) != 1 {
			continue
		}
		name, line := f.Names[0].Name, fset.Position(f.Pos()).Line
		switch {
		case f.Doc != nil:
			group = f.Doc.Text()
		case line != last+1:
			group = ""
		}
		last = line
		text := f.Comment.Text()
		if f.Doc != nil || regexp.MustCompile(`\b`+name+`\b`).MatchString(group) {
			text = strings.TrimSpace(group) + "\n" + text
		}
		c[typ+"."+name] = plain(text, names)
	}
}

var (
	link       = regexp.MustCompile(`\[(?:[a-z]+\.)?([A-Z]\w*)\]`)
	identifier = regexp.MustCompile(`\b(nil|[A-Z]\w*)\b`)
)

// plain makes one line of a comment, without links, and with the JSON names of fields. A nil
// value is absent in JSON.
func plain(text string, names map[string]string) string {
	text = link.ReplaceAllString(strings.Join(strings.Fields(text), " "), "$1")
	return identifier.ReplaceAllStringFunc(text, func(word string) string {
		switch name := names[word]; {
		case word == "nil":
			return "absent"
		case name != "":
			return name
		}
		return word
	})
}
