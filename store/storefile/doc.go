// Package storefile is the file of a store: the records in it and their encoding
// (types.go, entry.go, values.go), the check of its pages, and everything that works
// without a running store. Package store builds on it and writes the file.
//
// [Open] opens a file that no process serves and returns a [File] to read it. [Check]
// reports everything that is wrong with a file, and [Backup] copies one. [OpenDB] opens
// a file for a store, and a [Committer] makes its commits durable.
//
// bbolt trusts its file. So [OpenDB] checks all pages first, [Path.Guard] converts
// panics to errors, and every record has a checksum. A [CorruptError] names the place.
//
// Times are Unix nanoseconds, weights and costs thousandths, sizes bytes.
package storefile
