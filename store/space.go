package store

// Space is the room on a disk, in bytes.
type Space struct {
	Free  int64 // that can still be written by this process
	Total int64
}
