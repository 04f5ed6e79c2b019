package source

// Charges in bytes: the sizes of Go's allocator and maps on 64-bit machines,
// rounded up.
const (
	CostTable     = 112
	costFunc      = 128
	costUpvalue   = 88
	CostElem      = 40   // of an array, with the growth of the slice
	CostFirstElem = 560  // gopher-lua makes room for 32
	CostKey       = 200  // of a hash part that exists: both maps, the key list, the boxed key
	CostFirstKey  = 2800 // gopher-lua makes room for 32 keys
	costMap8      = 700  // the hash part of a constructor with up to 8 keys
)

// ConstructorCost is the charge of a constructor.
func ConstructorCost(items, keys int) int {
	n := CostTable + 24*items
	switch {
	case keys > 8:
		n += costMap8 + CostKey*keys
	case keys > 0:
		n += costMap8
	}
	return n
}
