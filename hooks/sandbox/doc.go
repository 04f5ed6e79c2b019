// Package sandbox runs Lua scripts so that none can hang, crash or bloat the
// process, nor see or change what another run left behind. It hides gopher-lua
// (see docs/adr/0033-an-own-sandbox-on-gopher-lua.md for why it exists).
//
// Compile checks a source and returns an immutable Script. A VM calls one
// function of a Script with an Argument and hands the returned Table to its
// caller. The VM keeps its Lua state between calls as long as no call wrote to
// it.
//
// How the limits hold, without a fork of gopher-lua and without unsafe:
//
//   - Time. The interpreter asks its context for Done before every instruction.
//     exec is that context: it counts, and reads the clock every 64 units or
//     fewer.
//   - Allocation. The syntax tree is rewritten (rewriter) so that everything
//     that allocates calls a helper that charges first, and metered builtins
//     replace the builtins of gopher-lua. The budget counts allocated bytes, not live
//     ones, so a run costs the same on every machine.
//   - A kill is final: pcall cannot catch it, and the VM drops its Lua state.
//   - Isolation. The rewritten assignments know which tables and variables
//     outlive a run. A run that wrote to one is the last in its globals; the
//     next run gets fresh ones. Library tables are read-only.
//   - Load. Sources are bounded before they reach the parser (prescan), the
//     compiler (checkTree) and the interpreter (checkProto).
//
// Caveats. Memory that the interpreter takes for numbers and call frames is not
// charged; the time limit and the stack limits bound it. The package sets two
// process-wide variables of gopher-lua (see maxArrayIndex).
package sandbox
