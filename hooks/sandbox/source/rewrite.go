package source

import (
	"slices"
	"strconv"

	"github.com/yuin/gopher-lua/ast"
)

// rewriter is pass two of rewriting: it replaces everything that allocates or
// writes shared state by calls of helpers.
//
//	a .. b .. c            concat(a, b, c)
//	t[k] = v               set(t, k, v)
//	name = v               setglobal("name", v)      for a global
//	name = v               mark(); name = v          for a local of an outer function
//	{...}, function ... end   charge(bytes) before the statement, or charged(expr, bytes)
//	                       if the statement may not evaluate the expression exactly once
//	{[k] = v}              setkeys({}, k, v)
//	a // b                 idiv(a, b)
//	local v                a box if closures share v and the script catches errors
//
// Charges are static upper bounds, except for constructors that end in several
// values (spread), which the registry bounds.
type rewriter struct {
	r    *resolver
	cost cost // of the current statement
}

type cost struct{ bytes, units int }

func rewrite(chunk []ast.Stmt, r *resolver) []ast.Stmt {
	w := &rewriter{r: r}
	return w.block(chunk)
}

// helper makes a call of a helper that yields exactly one value.
func helper(name string, pos ast.PositionHolder, args ...ast.Expr) *ast.FuncCallExpr {
	if n := len(args); n > 0 {
		adjustToOne(args[n-1])
	}
	f := withPos(&ast.StringExpr{Value: helperPrefix + name}, pos)
	return withPos(&ast.FuncCallExpr{Func: f, Args: args, AdjustRet: true}, pos)
}

// adjustToOne makes a call or ... yield exactly one value.
func adjustToOne(e ast.Expr) {
	switch e := e.(type) {
	case *ast.FuncCallExpr:
		e.AdjustRet = true
	case *ast.Comma3Expr:
		e.AdjustRet = true
	}
}

func number(n int, pos ast.PositionHolder) ast.Expr {
	return withPos(&ast.NumberExpr{Value: strconv.Itoa(n)}, pos)
}

func call(e *ast.FuncCallExpr) ast.Stmt {
	return withPos(&ast.FuncCallStmt{Expr: e}, e)
}

func (c cost) args(pos ast.PositionHolder) []ast.Expr {
	a := []ast.Expr{number(c.bytes, pos)}
	if c.units > 0 {
		a = append(a, number(c.units, pos))
	}
	return a
}

func (w *rewriter) block(b []ast.Stmt) []ast.Stmt {
	out := make([]ast.Stmt, 0, len(b)+4)
	for _, st := range b {
		outer := w.cost
		w.cost = cost{}
		done := w.stmt(st)
		if w.cost != (cost{}) {
			out = append(out, call(helper("charge", st, w.cost.args(st)...)))
		}
		out = append(out, done...)
		w.cost = outer
	}
	return out
}

// stmt rewrites a statement. It adds the cost of the expressions that st
// evaluates exactly once to w.cost.
func (w *rewriter) stmt(st ast.Stmt) []ast.Stmt {
	switch st := st.(type) {
	case *ast.AssignStmt:
		return w.assign(st)
	case *ast.LocalAssignStmt:
		return w.local(st)
	case *ast.FuncCallStmt:
		st.Expr = w.expr(st.Expr, false)
	case *ast.DoBlockStmt:
		st.Stmts = w.block(st.Stmts)
	case *ast.WhileStmt:
		st.Condition = w.expr(st.Condition, true)
		st.Stmts = w.block(st.Stmts)
	case *ast.RepeatStmt:
		st.Stmts = w.block(st.Stmts)
		st.Condition = w.expr(st.Condition, true)
	case *ast.IfStmt:
		st.Condition = w.expr(st.Condition, false)
		st.Then, st.Else = w.block(st.Then), w.block(st.Else)
	case *ast.NumberForStmt:
		st.Init, st.Limit = w.expr(st.Init, false), w.expr(st.Limit, false)
		if st.Step != nil {
			st.Step = w.expr(st.Step, false)
		}
		st.Stmts = append(w.boxes(st, &st.Name), w.block(st.Stmts)...)
	case *ast.GenericForStmt:
		w.exprs(st.Exprs, false)
		st.Stmts = append(w.boxes(st, pointers(st.Names)...), w.block(st.Stmts)...)
	case *ast.ReturnStmt:
		w.exprs(st.Exprs, false)
	}
	return []ast.Stmt{st}
}

func (w *rewriter) exprs(es []ast.Expr, maybe bool) {
	for i, e := range es {
		es[i] = w.expr(e, maybe)
	}
}

// expr rewrites e. maybe means that the statement may not evaluate e exactly
// once.
func (w *rewriter) expr(e ast.Expr, maybe bool) ast.Expr {
	switch e := e.(type) {
	case *ast.IdentExpr:
		if ref, ok := w.r.refs[e]; ok && ref.v.boxed {
			return boxed(e)
		}
	case *ast.TableExpr:
		return w.table(e, maybe)
	case *ast.LogicalOpExpr:
		e.Lhs, e.Rhs = w.expr(e.Lhs, maybe), w.expr(e.Rhs, true)
	case *ast.StringConcatOpExpr:
		return w.concat(e, maybe)
	case *ast.ArithmeticOpExpr:
		return w.arithmetic(e, maybe)
	case *ast.FunctionExpr:
		captures := w.r.captures[e]
		outer := w.cost
		e.Stmts = append(w.boxes(e, pointers(e.ParList.Names)...), w.block(e.Stmts)...)
		w.cost = outer
		c := cost{bytes: costFunc + costUpvalue*captures}
		if captures > 4 { // finding an open upvalue scans all of them
			c.units = 4 * captures
		}
		return w.charge(e, c, maybe)
	default:
		for _, o := range operands(e) {
			*o = w.expr(*o, maybe)
		}
	}
	return e
}

// charge adds c to the statement, or to e itself if maybe is set.
func (w *rewriter) charge(e ast.Expr, c cost, maybe bool) ast.Expr {
	if !maybe {
		w.cost.bytes += c.bytes
		w.cost.units += c.units
		return e
	}
	return helper("charged", e, append([]ast.Expr{e}, c.args(e)...)...)
}

func (w *rewriter) concat(e *ast.StringConcatOpExpr, maybe bool) ast.Expr {
	var args []ast.Expr
	var next ast.Expr = e
	for {
		c, ok := next.(*ast.StringConcatOpExpr)
		if !ok {
			break
		}
		args = append(args, w.expr(c.Lhs, maybe))
		next = c.Rhs
	}
	args = append(args, w.expr(next, maybe))
	return helper("concat", e, args...)
}

func (w *rewriter) arithmetic(e *ast.ArithmeticOpExpr, maybe bool) ast.Expr {
	if left, ok := e.Lhs.(*ast.ArithmeticOpExpr); ok && e.Operator == "/" && left.Operator == "/" {
		if id, ok := left.Rhs.(*ast.IdentExpr); ok && id.Value == intDivName {
			return helper("idiv", e, w.expr(left.Lhs, maybe), w.expr(e.Rhs, maybe))
		}
	}
	e.Lhs, e.Rhs = w.expr(e.Lhs, maybe), w.expr(e.Rhs, maybe)
	return e
}

// table keeps items and constant string keys in the constructor and sets the
// other keys after it.
func (w *rewriter) table(e *ast.TableExpr, maybe bool) ast.Expr {
	var fields []*ast.Field
	var dynamic []ast.Expr
	items, keys := 0, 0
	for _, f := range e.Fields {
		f.Value = w.expr(f.Value, maybe)
		_, constant := f.Key.(*ast.StringExpr)
		switch {
		case f.Key == nil:
			items++
			fields = append(fields, f)
		case constant:
			keys++
			fields = append(fields, f)
		default:
			k := w.expr(f.Key, maybe)
			adjustToOne(k)
			adjustToOne(f.Value)
			dynamic = append(dynamic, k, f.Value)
		}
	}
	if n := len(e.Fields); n > 0 && e.Fields[n-1].Key != nil && len(fields) > 0 && fields[len(fields)-1].Key == nil {
		adjustToOne(fields[len(fields)-1].Value) // it was not the last field
	}
	e.Fields = fields
	c := cost{bytes: ConstructorCost(items, keys)}
	var out ast.Expr
	if spreads(e) {
		out = helper("spread", e, e, number(c.bytes, e))
	} else {
		out = w.charge(e, c, maybe)
	}
	const atOnce = 20
	for len(dynamic) > 0 {
		n := min(len(dynamic), 2*atOnce)
		out = helper("setkeys", e, append([]ast.Expr{out}, dynamic[:n]...)...)
		dynamic = dynamic[n:]
	}
	return out
}

func spreads(e *ast.TableExpr) bool {
	n := len(e.Fields)
	if n == 0 || e.Fields[n-1].Key != nil {
		return false
	}
	switch v := e.Fields[n-1].Value.(type) {
	case *ast.FuncCallExpr:
		return !v.AdjustRet
	case *ast.Comma3Expr:
		return !v.AdjustRet
	}
	return false
}

// assign rewrites an assignment to any mix of locals, globals and fields.
func (w *rewriter) assign(st *ast.AssignStmt) []ast.Stmt {
	w.exprs(st.Rhs, false)
	if len(st.Lhs) == 1 && len(st.Rhs) == 1 {
		return w.store(st, st.Lhs[0], st.Rhs[0])
	}
	var marks []ast.Stmt
	spread := slices.ContainsFunc(st.Rhs, isCall) // see undoAdjust
	for _, l := range st.Lhs {
		id, _ := l.(*ast.IdentExpr)
		ref, local := w.r.refs[id]
		if spread || !local || ref.v.boxed {
			return []ast.Stmt{w.assignMany(st)}
		}
		marks = append(marks, w.mark(id, st)...)
	}
	return append(marks, st)
}

func isCall(e ast.Expr) bool {
	_, ok := e.(*ast.FuncCallExpr)
	return ok
}

// assignMany turns an assignment with several targets into a block: it evaluates
// all operands into locals first, then stores from the last to the first.
func (w *rewriter) assignMany(st *ast.AssignStmt) ast.Stmt {
	n := 0
	temp := func() (string, *ast.IdentExpr) {
		n++
		id := withPos(&ast.IdentExpr{Value: "\x00t" + strconv.Itoa(n)}, st)
		return id.Value, id
	}
	before := withPos(&ast.LocalAssignStmt{}, st)
	targets := make([]ast.Expr, len(st.Lhs))
	for i, l := range st.Lhs {
		targets[i] = l
		if get, ok := l.(*ast.AttrGetExpr); ok {
			o, object := temp()
			k, key := temp()
			oe, ke := w.expr(get.Object, false), w.expr(get.Key, false)
			adjustToOne(oe)
			adjustToOne(ke)
			before.Names = append(before.Names, o, k)
			before.Exprs = append(before.Exprs, oe, ke)
			targets[i] = withPos(&ast.AttrGetExpr{Object: object, Key: key}, get)
		}
	}
	values := withPos(&ast.LocalAssignStmt{Exprs: st.Rhs}, st)
	ids := make([]ast.Expr, len(st.Lhs))
	for i := range st.Lhs {
		name, id := temp()
		values.Names = append(values.Names, name)
		ids[i] = id
	}
	block := withPos(&ast.DoBlockStmt{}, st)
	if len(before.Names) > 0 {
		block.Stmts = append(block.Stmts, before)
	}
	block.Stmts = append(block.Stmts, values)
	for i := len(targets) - 1; i >= 0; i-- {
		one := withPos(&ast.AssignStmt{}, st)
		block.Stmts = append(block.Stmts, w.store(one, targets[i], ids[i])...)
	}
	return block
}

// store assigns one rewritten value to one target.
func (w *rewriter) store(st *ast.AssignStmt, target, value ast.Expr) []ast.Stmt {
	switch t := target.(type) {
	case *ast.AttrGetExpr:
		o, k := w.expr(t.Object, false), w.expr(t.Key, false)
		adjustToOne(o)
		adjustToOne(k)
		return []ast.Stmt{call(helper("set", st, o, k, value))}
	case *ast.IdentExpr:
		ref, ok := w.r.refs[t]
		if ok && ref.v.boxed {
			return []ast.Stmt{call(helper("set", st, t, number(1, st), value))}
		}
		if !ok {
			name := withPos(&ast.StringExpr{Value: t.Value}, st)
			return []ast.Stmt{call(helper("setglobal", st, name, value))}
		}
		undoAdjust(value)
		st.Lhs, st.Rhs = []ast.Expr{t}, []ast.Expr{value}
		return append(w.mark(t, st), st)
	}
	return []ast.Stmt{st} // the compiler refuses it
}

// undoAdjust undoes adjustToOne for the only value of an assignment, which takes one
// value anyway: gopher-lua compiles x = (f(x)) wrongly if x is the last parameter,
// because it puts f into the register of x first.
func undoAdjust(e ast.Expr) {
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
		return []ast.Stmt{call(helper("markouter", pos))}
	}
	return []ast.Stmt{call(helper("markinner", pos))}
}

// When an error is raised, gopher-lua detaches all closures from the locals of
// all running functions, even of those below the pcall that catches it: from then
// on a local and the closures that share it each have a copy. So in a script that
// can catch errors, a local that a closure shares and that is written after its
// declaration lives in a box, a table with one item:
//
//	local n = 0            local n = 0 local n = box(n)
//	n = n + 1              set(n, 1, n[1] + 1)
//
// The box itself is never written, so the copies agree.

// boxes declares boxes of the same names for the new locals that need one.
func (w *rewriter) boxes(pos ast.PositionHolder, names ...*string) []ast.Stmt {
	var out []ast.Stmt
	for _, name := range names {
		if v := w.r.decls[name]; v != nil && v.boxed {
			out = append(out, w.box(pos, *name, withPos(&ast.IdentExpr{Value: *name}, pos)))
		}
	}
	return out
}

func (w *rewriter) box(pos ast.PositionHolder, name string, value ast.Expr) ast.Stmt {
	return withPos(&ast.LocalAssignStmt{Names: []string{name}, Exprs: []ast.Expr{helper("box", pos, value)}}, pos)
}

// boxed is the expression that reads a boxed local.
func boxed(e *ast.IdentExpr) ast.Expr {
	return withPos(&ast.AttrGetExpr{Object: e, Key: number(1, e)}, e)
}

// local rewrites a declaration.
func (w *rewriter) local(st *ast.LocalAssignStmt) []ast.Stmt {
	w.exprs(st.Exprs, false)
	if v := w.r.decls[&st.Names[0]]; v != nil && v.boxed && len(st.Names) == 1 && len(st.Exprs) == 1 {
		if _, ok := st.Exprs[0].(*ast.FunctionExpr); ok { // the function sees itself: the box comes first
			none, id := withPos(&ast.NilExpr{}, st), withPos(&ast.IdentExpr{Value: st.Names[0]}, st)
			return []ast.Stmt{w.box(st, st.Names[0], none), call(helper("set", st, id, number(1, st), st.Exprs[0]))}
		}
	}
	return append([]ast.Stmt{st}, w.boxes(st, pointers(st.Names)...)...)
}
