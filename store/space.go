package store

// Space is the space on a disk in bytes.
type Space struct {
	Free  int64 // that this process can write
	Total int64
}
