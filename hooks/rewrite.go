package hooks

import (
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
)

// rewriter is pass two: it replaces what allocates or writes shared state by
// calls of helpers.
//
//	a .. b .. c            concat(a, b, c)
//	t[k] = v               set(t, k, v)
//	name = v               setglobal("name", v)      for a global
//	name = v               mark(); name = v          for a local of an outer function
//	{...}, function ... end   charge(bytes) before the statement, or
//	                       charged(expr, bytes) where it may not be reached
//	{[k] = v}              setkeys({}, k, v)
//	a // b                 idiv(a, b)
//	local v                a box, where closures share v and errors are caught
//
// Charges are static upper bounds, but for constructors that end in several
// values (spread), which the registry bounds.
type rewriter struct {
	r    *resolver
	cost cost // of the statement at hand
}

type cost struct{ bytes, units int }

func rewrite(chunk []ast.Stmt, r *resolver) []ast.Stmt {
	w := &rewriter{r: r}
	return w.block(chunk)
}

// helper makes a call of a helper. It gives one value wherever it stands.
func helper(name string, pos ast.PositionHolder, args ...ast.Expr) *ast.FuncCallExpr {
	if n := len(args); n > 0 {
		single(args[n-1])
	}
	f := at(&ast.StringExpr{Value: helperPrefix + name}, pos)
	return at(&ast.FuncCallExpr{Func: f, Args: args, AdjustRet: true}, pos)
}

// single makes a call or ... give one value.
func single(e ast.Expr) {
	switch e := e.(type) {
	case *ast.FuncCallExpr:
		e.AdjustRet = true
	case *ast.Comma3Expr:
		e.AdjustRet = true
	}
}

func number(n int, pos ast.PositionHolder) ast.Expr {
	return at(&ast.NumberExpr{Value: strconv.Itoa(n)}, pos)
}

func call(e *ast.FuncCallExpr) ast.Stmt {
	return at(&ast.FuncCallStmt{Expr: e}, e)
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

// stmt rewrites the expressions that st evaluates once into w.cost, and its
// blocks on their own.
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

// expr rewrites e. maybe tells that it is not evaluated exactly once when its
// statement is reached.
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

// table leaves items and constant string keys to the constructor.
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
			single(k)
			single(f.Value)
			dynamic = append(dynamic, k, f.Value)
		}
	}
	if n := len(e.Fields); n > 0 && e.Fields[n-1].Key != nil && len(fields) > 0 && fields[len(fields)-1].Key == nil {
		single(fields[len(fields)-1].Value) // it was not the last field
	}
	e.Fields = fields
	c := cost{bytes: constructorCost(items, keys)}
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

// link puts the helpers in the place of the constants that stand for them. It
// returns the length of the longest string constant.
func link(p *lua.FunctionProto) (longest int) {
	for i, c := range p.Constants {
		s, ok := c.(lua.LString)
		switch {
		case !ok:
		case strings.HasPrefix(string(s), helperPrefix):
			p.Constants[i] = helpers[string(s[len(helperPrefix):])]
		default:
			longest = max(longest, len(s))
		}
	}
	for _, q := range p.FunctionPrototypes {
		longest = max(longest, link(q))
	}
	return longest
}
