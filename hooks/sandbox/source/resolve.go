package source

import (
	"slices"
	"strings"

	"github.com/yuin/gopher-lua/ast"
)

// Suffixes that no source can contain. They mark the name of a local that a
// closure assigns, in the compiled code as well: outerMark a local of the top
// level, innerMark a local of a function.
const (
	outerMark = "\x000"
	innerMark = "\x001"
)

func isMarked(name string) bool {
	return strings.HasSuffix(name, outerMark) || IsInner(name)
}

// IsInner reports whether a variable of compiled code is a local of an inner function
// that a closure assigns.
func IsInner(name string) bool { return strings.HasSuffix(name, innerMark) }

// helperPrefix begins the constants that stand for helpers until link replaces
// them. Scripts may not contain it.
const helperPrefix = "\x00fila:"

// variable is one declaration of a local.
type variable struct {
	level    int     // nesting depth of its function; 0 for the top level
	decl     *string // its name in the tree
	refs     []*ast.IdentExpr
	assigned bool // by a closure
	captured bool // by a closure
	written  bool // after its declaration, anywhere
	boxed    bool // see rewriter.boxes
}

// reference is a use of a local.
type reference struct {
	v     *variable
	level int // of the function that uses it
}

type frame struct {
	captures map[*variable]struct{}
}

// resolver is pass one of rewriting: it finds the declaration of every name. It
// also turns method definitions into plain functions with a parameter self.
type resolver struct {
	scopes   []map[string]*variable
	frames   []*frame
	vars     []*variable
	refs     map[*ast.IdentExpr]reference
	captures map[*ast.FunctionExpr]int // how many variables a function takes from outside
	decls    map[*string]*variable     // by the name in the tree
	catches  bool                      // the script can catch errors
	warnings []Warning
	err      error
}

func resolve(chunk []ast.Stmt) *resolver {
	r := &resolver{
		refs:     map[*ast.IdentExpr]reference{},
		captures: map[*ast.FunctionExpr]int{},
		decls:    map[*string]*variable{},
		frames:   []*frame{{}},
	}
	r.block(chunk)
	for _, v := range r.vars {
		v.boxed = r.catches && v.captured && v.written
		if !v.assigned || v.boxed {
			continue
		}
		mark := outerMark
		if v.level > 0 {
			mark = innerMark
		}
		*v.decl += mark
		for _, id := range v.refs {
			id.Value = *v.decl
		}
	}
	return r
}

func (r *resolver) warn(line int, msg string) {
	if !slices.ContainsFunc(r.warnings, func(w Warning) bool { return w.Message == msg }) {
		r.warnings = append(r.warnings, Warning{line, msg})
	}
}

func (r *resolver) level() int { return len(r.frames) - 1 }

func (r *resolver) push() { r.scopes = append(r.scopes, map[string]*variable{}) }
func (r *resolver) pop()  { r.scopes = r.scopes[:len(r.scopes)-1] }

func (r *resolver) declare(name *string) {
	v := &variable{level: r.level(), decl: name}
	r.scopes[len(r.scopes)-1][*name] = v
	r.vars = append(r.vars, v)
	r.decls[name] = v
}

func (r *resolver) lookup(name string) *variable {
	for i := len(r.scopes) - 1; i >= 0; i-- {
		if v, ok := r.scopes[i][name]; ok {
			return v
		}
	}
	return nil
}

func (r *resolver) ident(e *ast.IdentExpr, assign bool) {
	v := r.lookup(e.Value)
	if v == nil {
		r.global(e, assign)
		return
	}
	v.refs = append(v.refs, e)
	r.refs[e] = reference{v, r.level()}
	v.captured = v.captured || v.level < r.level()
	v.written = v.written || assign
	for _, f := range r.frames[v.level+1:] {
		if f.captures == nil {
			f.captures = map[*variable]struct{}{}
		}
		f.captures[v] = struct{}{}
	}
	if assign && v.level < r.level() {
		v.assigned = true
		if v.level == 0 {
			r.warn(e.Line(), "a function assigns to the top-level local '"+e.Value+"': no message sees it, and the script starts afresh after such a run (about 15 us)")
		}
	}
}

var removedGlobals = map[string]string{
	"io": "there is no access to files", "debug": "", "coroutine": "", "channel": "", "package": "",
	"require": "a hook is one script", "dofile": "a hook is one script", "loadfile": "", "load": "", "loadstring": "",
	"setfenv": "", "getfenv": "", "newproxy": "", "module": "",
}

func (r *resolver) global(e *ast.IdentExpr, assign bool) {
	r.catches = r.catches || isCatch(e.Value)
	switch why, removed := removedGlobals[e.Value]; {
	case assign && r.level() > 0:
		r.warn(e.Line(), "a function assigns to the global '"+e.Value+"': no message sees it, and the script starts afresh after such a run (about 15 us); declare it local")
	case removed && !assign:
		msg := "'" + e.Value + "' is not available in hooks"
		if why != "" {
			msg += ": " + why
		}
		r.warn(e.Line(), msg)
	}
}

func isCatch(name string) bool { return name == "pcall" || name == "xpcall" }

func (r *resolver) block(b []ast.Stmt) {
	r.push()
	r.stmts(b)
	r.pop()
}

func (r *resolver) stmts(b []ast.Stmt) {
	for i, st := range b {
		if def, ok := st.(*ast.FuncDefStmt); ok {
			st = plainFunction(def)
			b[i] = st
		}
		r.stmt(st)
	}
}

// plainFunction turns a function definition into an assignment.
func plainFunction(def *ast.FuncDefStmt) ast.Stmt {
	target := def.Name.Func
	if target == nil {
		def.Func.ParList.Names = append([]string{"self"}, def.Func.ParList.Names...)
		key := withPos(&ast.StringExpr{Value: def.Name.Method}, def)
		target = withPos(&ast.AttrGetExpr{Object: def.Name.Receiver, Key: key}, def)
	}
	return withPos(&ast.AssignStmt{Lhs: []ast.Expr{target}, Rhs: []ast.Expr{def.Func}}, def)
}

// operands returns pointers to the expressions in e, in the order of their
// evaluation. A function has none.
func operands(e ast.Expr) []*ast.Expr {
	switch e := e.(type) {
	case *ast.AttrGetExpr:
		return []*ast.Expr{&e.Object, &e.Key}
	case *ast.FuncCallExpr:
		callee := &e.Func
		if e.Func == nil {
			callee = &e.Receiver
		}
		return append([]*ast.Expr{callee}, pointers(e.Args)...)
	case *ast.LogicalOpExpr:
		return []*ast.Expr{&e.Lhs, &e.Rhs}
	case *ast.RelationalOpExpr:
		return []*ast.Expr{&e.Lhs, &e.Rhs}
	case *ast.StringConcatOpExpr:
		return []*ast.Expr{&e.Lhs, &e.Rhs}
	case *ast.ArithmeticOpExpr:
		return []*ast.Expr{&e.Lhs, &e.Rhs}
	case *ast.UnaryMinusOpExpr:
		return []*ast.Expr{&e.Expr}
	case *ast.UnaryNotOpExpr:
		return []*ast.Expr{&e.Expr}
	case *ast.UnaryLenOpExpr:
		return []*ast.Expr{&e.Expr}
	}
	return nil
}

func pointers[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

// withPos gives n the position of m and returns n.
func withPos[N ast.PositionHolder](n N, m ast.PositionHolder) N {
	n.SetLine(m.Line())
	n.SetLastLine(m.LastLine())
	return n
}

func (r *resolver) stmt(st ast.Stmt) {
	switch st := st.(type) {
	case *ast.AssignStmt:
		for _, l := range st.Lhs {
			if id, ok := l.(*ast.IdentExpr); ok {
				r.ident(id, true)
			} else {
				r.expr(l)
			}
		}
		r.exprs(st.Rhs)
	case *ast.LocalAssignStmt:
		recursive := false // as in the compiler: local f = function sees itself
		if len(st.Names) == 1 && len(st.Exprs) == 1 {
			_, recursive = st.Exprs[0].(*ast.FunctionExpr)
		}
		if recursive {
			r.declare(&st.Names[0])
			r.exprs(st.Exprs)
			break
		}
		r.exprs(st.Exprs)
		for i := range st.Names {
			r.declare(&st.Names[i])
		}
	case *ast.FuncCallStmt:
		r.expr(st.Expr)
	case *ast.DoBlockStmt:
		r.block(st.Stmts)
	case *ast.WhileStmt:
		r.expr(st.Condition)
		r.block(st.Stmts)
	case *ast.RepeatStmt:
		r.push()
		r.stmts(st.Stmts)
		r.expr(st.Condition)
		r.pop()
	case *ast.IfStmt:
		r.expr(st.Condition)
		r.block(st.Then)
		r.block(st.Else)
	case *ast.NumberForStmt:
		r.exprs([]ast.Expr{st.Init, st.Limit, st.Step})
		r.push()
		r.declare(&st.Name)
		r.stmts(st.Stmts)
		r.pop()
	case *ast.GenericForStmt:
		r.exprs(st.Exprs)
		r.push()
		for i := range st.Names {
			r.declare(&st.Names[i])
		}
		r.stmts(st.Stmts)
		r.pop()
	case *ast.ReturnStmt:
		r.exprs(st.Exprs)
	}
}

func (r *resolver) exprs(es []ast.Expr) {
	for _, e := range es {
		r.expr(e)
	}
}

func (r *resolver) expr(e ast.Expr) {
	switch e := e.(type) {
	case *ast.StringExpr:
		r.catches = r.catches || isCatch(e.Value) // _G["pcall"]
		if strings.HasPrefix(e.Value, helperPrefix) && r.err == nil {
			r.err = &Error{Line: e.Line(), Message: "this string constant is reserved"}
		}
	case *ast.IdentExpr:
		r.ident(e, false)
	case *ast.TableExpr:
		for _, f := range e.Fields {
			if f.Key != nil {
				r.expr(f.Key)
			}
			r.expr(f.Value)
		}
	case *ast.FunctionExpr:
		f := &frame{}
		r.frames = append(r.frames, f)
		r.push()
		for i := range e.ParList.Names {
			r.declare(&e.ParList.Names[i])
		}
		r.stmts(e.Stmts)
		r.pop()
		r.frames = r.frames[:len(r.frames)-1]
		r.captures[e] = len(f.captures)
	default:
		for _, o := range operands(e) {
			r.expr(*o)
		}
	}
}
