// Package applycmd has fila apply, diff and export-config: queues, limits, schedules and rules as
// documents that lie in git.
//
// documents.go reads them, kinds.go knows their fields, plan.go compares them with what is there, and
// apply.go has the commands.
//
// Each object has an owner, such as a team, in the runtime configuration under owner:<kind>:<name>. An
// object of another owner is not touched: fila refuses such a change.
package applycmd
