//go:build !linux

package policy

import "errors"

// physicalAtOnce is for systems whose kernel can be asked.
func physicalAtOnce(string) (string, error) { return "", errors.ErrUnsupported }
