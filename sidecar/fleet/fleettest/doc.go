// Package fleettest has a bucket in memory for tests of filas that share records: several instances
// use one [Bucket] by [Bucket.Of], and the test cuts them off, loses answers, and delays the watch.
package fleettest
