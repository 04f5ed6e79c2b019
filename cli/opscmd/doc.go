// Package opscmd is the commands of those who run fila, or try it: fila top and
// watch, config and reload, demo and bench, man and version.
//
// top draws a topFrame of two samples of the queues; a demo is a sidecar of its
// own with tenants, workers and a provider (demoLoad), and what came of it
// (demoReport).
package opscmd
