package hooks

import (
	"slices"
	"strconv"

	"github.com/yuin/gopher-lua/ast"
)

// assign rewrites an assignment to any mix of locals, globals and fields.
func (w *rewriter) assign(st *ast.AssignStmt) []ast.Stmt {
	w.exprs(st.Rhs, false)
	if len(st.Lhs) == 1 && len(st.Rhs) == 1 {
		return w.store(st, st.Lhs[0], st.Rhs[0])
	}
	var marks []ast.Stmt
	spread := slices.ContainsFunc(st.Rhs, isCall) // see oneValue
	for _, l := range st.Lhs {
		id, _ := l.(*ast.IdentExpr)
		ref, local := w.r.refs[id]
		if spread || !local || ref.v.boxed {
			return []ast.Stmt{w.spreadOut(st)}
		}
		marks = append(marks, w.mark(id, st)...)
	}
	return append(marks, st)
}

func isCall(e ast.Expr) bool {
	_, ok := e.(*ast.FuncCallExpr)
	return ok
}

// spreadOut makes a block of an assignment with several targets: all operands
// are evaluated into locals first, then stored from the last to the first.
func (w *rewriter) spreadOut(st *ast.AssignStmt) ast.Stmt {
	n := 0
	temp := func() (string, *ast.IdentExpr) {
		n++
		id := at(&ast.IdentExpr{Value: "\x00t" + strconv.Itoa(n)}, st)
		return id.Value, id
	}
	before := at(&ast.LocalAssignStmt{}, st)
	targets := make([]ast.Expr, len(st.Lhs))
	for i, l := range st.Lhs {
		targets[i] = l
		if get, ok := l.(*ast.AttrGetExpr); ok {
			o, object := temp()
			k, key := temp()
			oe, ke := w.expr(get.Object, false), w.expr(get.Key, false)
			single(oe)
			single(ke)
			before.Names = append(before.Names, o, k)
			before.Exprs = append(before.Exprs, oe, ke)
			targets[i] = at(&ast.AttrGetExpr{Object: object, Key: key}, get)
		}
	}
	values := at(&ast.LocalAssignStmt{Exprs: st.Rhs}, st)
	ids := make([]ast.Expr, len(st.Lhs))
	for i := range st.Lhs {
		name, id := temp()
		values.Names = append(values.Names, name)
		ids[i] = id
	}
	block := at(&ast.DoBlockStmt{}, st)
	if len(before.Names) > 0 {
		block.Stmts = append(block.Stmts, before)
	}
	block.Stmts = append(block.Stmts, values)
	for i := len(targets) - 1; i >= 0; i-- {
		one := at(&ast.AssignStmt{}, st)
		block.Stmts = append(block.Stmts, w.store(one, targets[i], ids[i])...)
	}
	return block
}

// store assigns one value, which is rewritten already, to one target.
func (w *rewriter) store(st *ast.AssignStmt, target, value ast.Expr) []ast.Stmt {
	switch t := target.(type) {
	case *ast.AttrGetExpr:
		o, k := w.expr(t.Object, false), w.expr(t.Key, false)
		single(o)
		single(k)
		return []ast.Stmt{call(helper("set", st, o, k, value))}
	case *ast.IdentExpr:
		ref, ok := w.r.refs[t]
		if ok && ref.v.boxed {
			return []ast.Stmt{call(helper("set", st, t, number(1, st), value))}
		}
		if !ok {
			name := at(&ast.StringExpr{Value: t.Value}, st)
			return []ast.Stmt{call(helper("setglobal", st, name, value))}
		}
		oneValue(value)
		st.Lhs, st.Rhs = []ast.Expr{t}, []ast.Expr{value}
		return append(w.mark(t, st), st)
	}
	return []ast.Stmt{st} // the compiler refuses it
}

// oneValue undoes single for the only value of an assignment, which takes one
// value anyway: gopher-lua compiles x = (f(x)) wrongly when x is the last
// parameter, it puts f into the register of x first.
func oneValue(e ast.Expr) {
	if c, ok := e.(*ast.FuncCallExpr); ok {
		c.AdjustRet = false
	}
}

// mark returns the call before an assignment to a local of another function.
func (w *rewriter) mark(id *ast.IdentExpr, pos ast.PositionHolder) []ast.Stmt {
	ref := w.r.refs[id]
	switch {
	case ref.v.level == ref.level:
		return nil
	case ref.v.level == 0:
		return []ast.Stmt{call(helper("mark0", pos))}
	}
	return []ast.Stmt{call(helper("mark1", pos))}
}
