// Package hooks runs the Lua hooks of queues, on_enqueue and on_failure, so
// that no script can hang, crash or bloat the process, nor see or change
// another message's run. It hides gopher-lua completely.
//
// Compile checks a source and gives a Script, which is immutable. A Guard is
// one queue's one hook: a Script, a sandboxed VM, a circuit (package breaker)
// and counters. It answers every message with a decision: the script's, within
// bounds, or the safe defaults when the script fails or its circuit is open. A
// Runner runs a Script by hand.
//
// How the limits hold, without a fork of gopher-lua and without unsafe:
//
//   - Time. The VM asks its context for Done before every instruction. exec is
//     that context: it counts, and looks at the clock every 64 units or fewer.
//   - Allocation. The syntax tree is rewritten (rewriter) so that whatever
//     allocates calls a helper that charges first, and all builtins are
//     replaced by metered ones. The budget counts allocated bytes, not live
//     ones, so a run costs the same on every machine.
//   - A kill is final: pcall cannot catch it, and the Lua state is dropped.
//   - Isolation. The rewritten assignments know which tables and variables
//     outlive a run. A run that wrote to one is the last in its globals; the
//     next message gets fresh ones. Library tables are read-only.
//   - Load. Sources are bounded before they reach the parser (prescan), the
//     compiler (checkTree) and the VM (checkProto).
//
// Caveats. Memory that the VM takes for numbers and call frames is not
// charged; it is bounded by the time limit and the stack limits. Headers are
// looked up by their exact case. The package sets two process-wide knobs of
// gopher-lua (see maxArrayIndex).
package hooks
