package hooks

import (
	"github.com/yuin/gopher-lua/ast"
)

// When an error is raised, gopher-lua detaches all closures from the locals of
// all functions that are running, also of those below the pcall that catches
// it: from then on a local and the closures that share it each have a copy. So
// in a script that can catch errors, a local that a closure shares and that is
// written after its declaration lives in a box, a table with one item:
//
//	local n = 0            local n = 0 local n = box(n)
//	n = n + 1              set(n, 1, n[1] + 1)
//
// The box itself is never written, so the copies agree.

// boxes puts the boxed ones of some new locals into boxes of the same names.
func (w *rewriter) boxes(pos ast.PositionHolder, names ...*string) []ast.Stmt {
	var out []ast.Stmt
	for _, name := range names {
		if v := w.r.decls[name]; v != nil && v.boxed {
			out = append(out, w.box(pos, *name, at(&ast.IdentExpr{Value: *name}, pos)))
		}
	}
	return out
}

func (w *rewriter) box(pos ast.PositionHolder, name string, value ast.Expr) ast.Stmt {
	return at(&ast.LocalAssignStmt{Names: []string{name}, Exprs: []ast.Expr{helper("box", pos, value)}}, pos)
}

// boxed reads a boxed local.
func boxed(e *ast.IdentExpr) ast.Expr {
	return at(&ast.AttrGetExpr{Object: e, Key: number(1, e)}, e)
}

// local rewrites a declaration.
func (w *rewriter) local(st *ast.LocalAssignStmt) []ast.Stmt {
	w.exprs(st.Exprs, false)
	if v := w.r.decls[&st.Names[0]]; v != nil && v.boxed && len(st.Names) == 1 && len(st.Exprs) == 1 {
		if _, ok := st.Exprs[0].(*ast.FunctionExpr); ok { // it sees itself: the box comes first
			none, id := at(&ast.NilExpr{}, st), at(&ast.IdentExpr{Value: st.Names[0]}, st)
			return []ast.Stmt{w.box(st, st.Names[0], none), call(helper("set", st, id, number(1, st), st.Exprs[0]))}
		}
	}
	return append([]ast.Stmt{st}, w.boxes(st, pointers(st.Names)...)...)
}
