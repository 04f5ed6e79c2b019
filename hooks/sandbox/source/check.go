package source

import (
	"fmt"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
)

// function is the state of the checker for a function that it is in.
type function struct {
	active int            // locals in registers
	names  int            // locals declared so far
	outer  int            // locals of the functions around it
	consts map[string]int // constants by first use
}

// checker walks a tree before it is compiled. It refuses a tree that the compiler
// would take too long for or would miscompile.
type checker struct {
	lookups, constants int
	depth, line        int
}

// checkTree refuses a chunk that exceeds the load limits.
func checkTree(chunk []ast.Stmt) (err error) {
	c := &checker{}
	defer func() {
		if r := recover(); r != nil {
			se, ok := r.(*Error)
			if !ok {
				se = &Error{Line: c.line, Message: fmt.Sprint(r)}
			}
			err = se
		}
	}()
	c.block(&function{}, chunk)
	return nil
}

func (c *checker) refuse(format string, args ...any) {
	panic(&Error{Line: c.line, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) enter(n ast.PositionHolder) {
	if n.Line() > 0 {
		c.line = n.Line()
	}
	if c.depth++; c.depth > maxTreeDepth {
		c.refuse("expression or nesting too deep (at most %d levels)", maxTreeDepth)
	}
}

func (c *checker) block(f *function, b []ast.Stmt) {
	active := f.active
	for _, st := range b {
		c.stmt(f, st)
	}
	f.active = active
}

// regs notes that the code needs n registers above the locals.
func (c *checker) regs(f *function, n int) {
	if f.active+n > maxRegisters {
		c.refuse("too many locals, arguments or operands (at most %d in one function)", maxRegisters)
	}
}

func (c *checker) constant(f *function, k string) {
	if f.consts == nil {
		f.consts = map[string]int{}
	}
	i, ok := f.consts[k]
	if !ok {
		i = len(f.consts) + 1
		f.consts[k] = i
	}
	if c.constants += i; c.constants > maxConstant {
		c.refuse("too many constants")
	}
}

func (c *checker) name(f *function, k string) {
	if c.lookups += f.names + f.outer + 1; c.lookups > maxLookups {
		c.refuse("too many uses of too many local variables")
	}
	c.constant(f, k)
}

func (c *checker) locals(f *function, n int) {
	f.active += n
	f.names += n
	c.regs(f, 0)
}

func (c *checker) list(f *function, es []ast.Expr) {
	for i, e := range es {
		c.regs(f, i+c.expr(f, e))
	}
}

func (c *checker) stmt(f *function, st ast.Stmt) {
	c.enter(st)
	defer func() { c.depth-- }()
	active := f.active
	switch st := st.(type) {
	case *ast.AssignStmt:
		c.list(f, st.Lhs)
		c.regs(f, 2*len(st.Lhs))
		for i, e := range st.Rhs {
			c.regs(f, 2*len(st.Lhs)+i+c.expr(f, e))
		}
		c.regs(f, 3*len(st.Lhs))
	case *ast.LocalAssignStmt:
		c.list(f, st.Exprs)
		c.locals(f, len(st.Names))
	case *ast.FuncCallStmt:
		c.regs(f, c.expr(f, st.Expr))
	case *ast.DoBlockStmt:
		c.block(f, st.Stmts)
	case *ast.WhileStmt:
		c.regs(f, c.expr(f, st.Condition))
		c.block(f, st.Stmts)
	case *ast.RepeatStmt:
		for _, q := range st.Stmts {
			c.stmt(f, q)
		}
		c.regs(f, c.expr(f, st.Condition))
		f.active = active
	case *ast.IfStmt:
		c.regs(f, c.expr(f, st.Condition))
		c.block(f, st.Then)
		c.block(f, st.Else)
	case *ast.NumberForStmt:
		c.list(f, []ast.Expr{st.Init, st.Limit, st.Step})
		c.locals(f, 4)
		c.block(f, st.Stmts)
		f.active = active
	case *ast.GenericForStmt:
		c.list(f, st.Exprs)
		c.locals(f, 3+len(st.Names))
		c.regs(f, 4)
		c.block(f, st.Stmts)
		f.active = active
	case *ast.FuncDefStmt:
		c.function(f, st.Func, 1)
		c.regs(f, 4)
	case *ast.ReturnStmt:
		c.list(f, st.Exprs)
	}
}

func (c *checker) function(f *function, e *ast.FunctionExpr, self int) {
	inner := &function{outer: f.outer + f.names}
	c.locals(inner, len(e.ParList.Names)+self)
	c.block(inner, e.Stmts)
}

// expr returns how many registers above the present top e takes.
func (c *checker) expr(f *function, e ast.Expr) int {
	if e == nil {
		return 0
	}
	c.enter(e)
	defer func() { c.depth-- }()
	switch e := e.(type) {
	case *ast.NumberExpr:
		if len(e.Value) > MaxNumeral {
			c.refuse("malformed number (at most %d digits)", MaxNumeral)
		}
		c.constant(f, "#"+e.Value)
	case *ast.StringExpr:
		c.constant(f, e.Value)
	case *ast.IdentExpr:
		c.name(f, e.Value)
	case *ast.TableExpr:
		return c.table(f, e)
	case *ast.FuncCallExpr:
		return c.call(f, e)
	case *ast.LogicalOpExpr:
		return max(c.expr(f, e.Lhs), c.expr(f, e.Rhs)) + 1
	case *ast.FunctionExpr:
		c.function(f, e, 0)
	default:
		most := 0
		for i, o := range operands(e) { // each above the operands before it
			most = max(most, i+c.expr(f, *o))
		}
		return max(most, 1)
	}
	return 1
}

func (c *checker) table(f *function, e *ast.TableExpr) int {
	most, pending, items := 1, 1, 0
	for _, field := range e.Fields {
		if field.Key != nil {
			most = max(most, pending+c.expr(f, field.Key), pending+1+c.expr(f, field.Value))
			continue
		}
		most = max(most, pending+c.expr(f, field.Value))
		if items++; items > maxItems {
			c.refuse("too many items in a table constructor (at most %d)", maxItems)
		}
		if pending++; items%lua.FieldsPerFlush == 0 {
			pending = 1
		}
	}
	return most
}

func (c *checker) call(f *function, e *ast.FuncCallExpr) int {
	r, most := 1, 0
	if e.Func != nil {
		most = c.expr(f, e.Func)
	} else {
		most = c.expr(f, e.Receiver)
		c.constant(f, e.Method)
		r = 3
	}
	for _, a := range e.Args {
		most = max(most, r+c.expr(f, a))
		r++
	}
	return max(most, r) + 1
}

// checkProto checks the invariants that a run relies on: the number of captured
// variables of a function is bounded, and rewriting left no instruction that
// allocates or writes shared state unmetered.
func checkProto(p *lua.FunctionProto) error {
	if len(p.DbgUpvalues) > maxUpvalues {
		return &Error{Line: p.LineDefined, Message: fmt.Sprintf("a function uses too many variables from outside (at most %d)", maxUpvalues)}
	}
	for pc := 0; pc < len(p.Code); pc++ {
		inst := p.Code[pc]
		switch int(inst >> 26) {
		case lua.OP_CLOSURE: // followed by one pseudo instruction per upvalue
			pc += int(p.FunctionPrototypes[inst&0x3ffff].NumUpvalues)
		case lua.OP_CONCAT, lua.OP_SETGLOBAL:
			return &Error{Line: p.DbgSourcePositions[pc], Message: "this construct cannot be metered"}
		case lua.OP_SETUPVAL:
			if b := int(inst & 0x1ff); b >= len(p.DbgUpvalues) || !isMarked(p.DbgUpvalues[b]) {
				return &Error{Line: p.DbgSourcePositions[pc], Message: "this assignment cannot be tracked"}
			}
		}
	}
	for _, q := range p.FunctionPrototypes {
		if err := checkProto(q); err != nil {
			return err
		}
	}
	return nil
}
