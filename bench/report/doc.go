// Package report is what comes of a benchmark: a [Report] of measurements, as a
// table with [Report.WriteTable], as a picture with [Report.Chart], and as JSON as
// it is. A [Workload] says which figures of its measurements are shown, what they
// are compared with, and which goals they have.
package report
