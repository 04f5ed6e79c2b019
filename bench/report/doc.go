// Package report has the result of a benchmark: a [Report] of measurements, as a table with
// [Report.WriteTable], as a picture with [Report.Chart], and as JSON. A [Workload] says which
// figures its tables have, what they are compared with, and its goals.
package report
