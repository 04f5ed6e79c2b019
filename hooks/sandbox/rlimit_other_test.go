//go:build !unix

package sandbox

import "errors"

// limitAddressSpace is for platforms that have /proc.
func limitAddressSpace(uint64) error { return errors.ErrUnsupported }
