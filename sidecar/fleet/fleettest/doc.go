// Package fleettest has a bucket in memory, for tests of what filas share: several
// instances use one [Bucket] by [Bucket.Of], and the test takes it away from them,
// loses answers, and holds back what the watch brings.
package fleettest
