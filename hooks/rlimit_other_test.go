//go:build !unix

package hooks

import "errors"

// limitAddressSpace is for platforms that have /proc.
func limitAddressSpace(uint64) error { return errors.ErrUnsupported }
