package wire

// Page returns what a list reply has of items: limit of them from offset on.
func Page[T any](items []T, offset, limit int) []T {
	items = items[min(offset, len(items)):]
	return items[:min(limit, len(items))]
}
