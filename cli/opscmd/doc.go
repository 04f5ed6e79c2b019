// Package opscmd has the commands to operate and try fila: fila top and watch, config and
// reload, demo and bench, man and version.
//
// top draws a topFrame from two samples of the queues. The demos play on a demoStage, which
// starts their processes and clients, ends them, and shows what happens.
package opscmd
