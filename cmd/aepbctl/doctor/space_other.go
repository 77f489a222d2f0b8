//go:build !linux

package doctor

import "errors"

// space is not known here.
func space(string) (free, all uint64, err error) { return 0, 0, errors.ErrUnsupported }
