// Package opscmd has the commands to operate and try fila: fila top and watch, config and
// reload, demo and bench, man and version.
//
// top draws a topFrame from two samples of the queues. A demo is its own sidecar with tenants,
// workers and a provider (demoLoad); demoReport is its result.
package opscmd
